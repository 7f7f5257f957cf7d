"""MPI functions that the tracer leaves alone, for the page that lists every call."""

from __future__ import annotations

from p3s.signature_runner.tracer.table import names

#: MPI functions that are not wrapped: they move nothing to another process, or only names of it.
UNTOUCHED: dict[str, tuple[str, ...]] = {
    "Tool interface": names("""
T_category_changed T_category_get_categories T_category_get_cvars T_category_get_events
T_category_get_index T_category_get_info T_category_get_num T_category_get_num_events
T_category_get_pvars T_cvar_get_index T_cvar_get_info T_cvar_get_num T_cvar_handle_alloc
T_cvar_handle_free T_cvar_read T_cvar_write T_enum_get_info T_enum_get_item
T_event_callback_get_info T_event_callback_set_info T_event_copy T_event_get_index
T_event_get_info T_event_get_num T_event_get_source T_event_get_timestamp T_event_handle_alloc
T_event_handle_free T_event_handle_get_info T_event_handle_set_info T_event_read
T_event_register_callback T_event_set_dropped_handler T_finalize T_init_thread T_pvar_get_index
T_pvar_get_info T_pvar_get_num T_pvar_handle_alloc T_pvar_handle_free T_pvar_read
T_pvar_readreset T_pvar_reset T_pvar_session_create T_pvar_session_free T_pvar_start
T_pvar_stop T_pvar_write T_source_get_info T_source_get_num T_source_get_timestamp
"""),
    "Handles and statuses of other languages and of the ABI": names("""
Abi_get_fortran_booleans Abi_get_fortran_info Abi_get_info Abi_get_version
Abi_set_fortran_booleans Abi_set_fortran_info Comm_c2f Comm_toint Errhandler_c2f
Errhandler_toint File_c2f File_toint Group_c2f Group_toint Info_c2f Info_toint Message_c2f
Message_toint Op_c2f Op_toint Request_c2f Request_toint Session_c2f Session_toint Status_c2f
Status_c2f08 Status_f082c Status_f082f Status_f2c Status_f2f08 Type_c2f Type_toint Win_c2f
Win_toint
"""),
    "Status": names("""
Get_count Get_elements Get_elements_x Status_get_error Status_get_source Status_get_tag
Status_set_cancelled Status_set_elements Status_set_elements_x Status_set_error
Status_set_source Status_set_tag Test_cancelled
"""),
    "Datatypes and packing": names("""
Address Aint_add Aint_diff Get_address Pack Pack_external Pack_external_size Pack_size
Register_datarep Type_commit Type_contiguous Type_create_darray Type_create_f90_complex
Type_create_f90_integer Type_create_f90_real Type_create_hindexed Type_create_hindexed_block
Type_create_hvector Type_create_indexed_block Type_create_keyval Type_create_resized
Type_create_struct Type_create_subarray Type_delete_attr Type_dup Type_extent Type_free_keyval
Type_get_attr Type_get_contents Type_get_envelope Type_get_extent Type_get_extent_x
Type_get_name Type_get_true_extent Type_get_true_extent_x Type_get_value_index Type_hindexed
Type_hvector Type_indexed Type_lb Type_match_size Type_set_attr Type_set_name Type_size
Type_size_x Type_struct Type_ub Type_vector Unpack Unpack_external
"""),
    "Groups": names("""
Group_compare Group_difference Group_excl Group_free Group_from_session_pset Group_incl
Group_intersection Group_range_excl Group_range_incl Group_rank Group_size
Group_translate_ranks Group_union
"""),
    "Info": names("""
Info_create Info_create_env Info_delete Info_dup Info_free Info_get Info_get_nkeys
Info_get_nthkey Info_get_string Info_get_valuelen Info_set
"""),
    "Sessions": names("""
Session_attach_buffer Session_call_errhandler Session_create_errhandler
Session_get_errhandler Session_get_info
Session_get_nth_pset Session_get_num_psets Session_get_pset_info Session_iflush_buffer
Session_set_errhandler Session_set_info
"""),
    "Buffers": names("""
Buffer_attach Buffer_iflush Comm_attach_buffer Comm_iflush_buffer
"""),
    "Attributes and keys": names("""
Attr_delete Attr_get Attr_put Comm_create_keyval Comm_delete_attr Comm_free_keyval
Comm_get_attr Comm_set_attr Keyval_create Keyval_free Win_create_keyval Win_delete_attr
Win_free_keyval Win_get_attr Win_set_attr
"""),
    "Errors": names("""
Add_error_class Add_error_code Add_error_string Comm_call_errhandler Comm_create_errhandler
Comm_get_errhandler Comm_set_errhandler Errhandler_create Errhandler_free Errhandler_get
Errhandler_set Error_class Error_string File_call_errhandler File_create_errhandler
File_get_errhandler File_set_errhandler Remove_error_class Remove_error_code
Remove_error_string Win_call_errhandler Win_create_errhandler Win_get_errhandler
Win_set_errhandler
"""),
    "Topologies": names("""
Cart_coords Cart_get Cart_map Cart_rank Cart_shift Cartdim_get Dims_create Dist_graph_neighbors
Dist_graph_neighbors_count Graph_get Graph_map Graph_neighbors Graph_neighbors_count
Graphdims_get Topo_test
"""),
    "Communicators": names("""
Comm_compare Comm_get_info Comm_get_name Comm_get_parent Comm_group Comm_rank Comm_remote_group
Comm_remote_size Comm_set_info Comm_set_name Comm_size Comm_test_inter
"""),
    "Windows": names("""
Win_attach Win_detach Win_get_group Win_get_info Win_get_name Win_set_info Win_set_name
Win_shared_query
"""),
    "Files": names("""
File_get_amode File_get_atomicity File_get_byte_offset File_get_group File_get_info
File_get_position File_get_position_shared File_get_size File_get_type_extent File_get_view
File_seek File_set_info
"""),
    "Names of services": names("""
Close_port Lookup_name Open_port Publish_name Unpublish_name
"""),
    "Environment": names("""
Alloc_mem Cancel Finalized Free_mem Get_hw_resource_info Get_library_version Get_processor_name
Get_version Grequest_complete Grequest_start Initialized Is_thread_main Op_commutative
Op_create Op_free Query_thread Reduce_local Wtick Wtime
"""),
}
