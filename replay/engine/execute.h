/* Executing one event of a program. */

/* The requests of a list as MPI wants them: one after the other. */
static MPI_Request *gathered(struct loop *s, const struct op *o)
{
    if (o->in_order && o->number > 0)
        return s->slots + o->list[0];
    for (int i = 0; i < o->number; i++)
        s->scratch[i] = s->slots[o->list[i]];
    return s->scratch;
}

static int wait_all(struct loop *s, const struct op *o)
{
    if (o->number == 1) {
        MPI_Request *r = s->slots + o->list[0];
        int error = MPI_Wait(r, MPI_STATUS_IGNORE);
        *r = MPI_REQUEST_NULL;
        return error;
    }
    if (o->number == 0)
        return MPI_SUCCESS;
    MPI_Request *r = gathered(s, o);
    int error = MPI_Waitall(o->number, r, MPI_STATUSES_IGNORE);
    if (!o->in_order)
        for (int i = 0; i < o->number; i++)
            s->slots[o->list[i]] = MPI_REQUEST_NULL;
    return error;
}

static int wait_any(struct loop *s, const struct op *o)
{
    int which;
    int error = MPI_Waitany(o->number, gathered(s, o), &which, MPI_STATUS_IGNORE);
    if (error == MPI_SUCCESS && which != MPI_UNDEFINED)
        s->slots[o->list[which]] = MPI_REQUEST_NULL;
    return error;
}

static int wait_some(struct loop *s, const struct op *o)
{
    for (int done = 0; done < o->arg;) {
        int number;
        int error = MPI_Waitsome(o->number, gathered(s, o), &number, s->indices,
                                 MPI_STATUSES_IGNORE);
        if (error != MPI_SUCCESS || number == MPI_UNDEFINED)
            return error;
        for (int i = 0; i < number; i++)
            s->slots[o->list[s->indices[i]]] = MPI_REQUEST_NULL;
        done += number;
    }
    return MPI_SUCCESS;
}

static int ask(struct loop *s, const struct op *o)
{
    int64_t control[CONTROL_WORDS] = {o->arg, o->bytes, o->tag};
    return MPI_Send(control, CONTROL_WORDS, MPI_INT64_T, o->peer, 0, s->control);
}

/* Take a control message and send the message that it asks for. */
static int answer(struct loop *s, const struct op *o)
{
    int64_t control[CONTROL_WORDS];
    int error = MPI_Recv(control, CONTROL_WORDS, MPI_INT64_T, o->peer, 0, s->control,
                         MPI_STATUS_IGNORE);
    if (error != MPI_SUCCESS)
        return error;
    if (control[1] != o->bytes || control[2] != o->tag)
        return WRONG_CONTROL;
    return MPI_Isend(o->buffer, o->bytes, MPI_BYTE, o->peer, o->tag, s->messages,
                     &s->hidden[s->n_hidden++]);
}

static int one_of_flood(struct loop *s, const struct op *o, int64_t k, MPI_Request *r)
{
    char *buffer = o->buffer + (size_t)(k % WINDOW) * (size_t)o->bytes;
    if (o->code == LINK_SEND)
        return MPI_Isend(buffer, o->bytes, MPI_BYTE, o->peer, o->tag, s->messages, r);
    return MPI_Irecv(buffer, o->bytes, MPI_BYTE, o->peer, o->tag, s->messages, r);
}

/* Send or receive many messages, WINDOW at a time; done_ns gets when each receive was complete. */
static int flood(struct loop *s, const struct op *o, int64_t *done_ns)
{
    MPI_Request window[WINDOW];
    int error = MPI_SUCCESS;
    for (int64_t k = 0; k < o->number && k < WINDOW && error == MPI_SUCCESS; k++)
        error = one_of_flood(s, o, k, &window[k]);
    for (int64_t k = 0; k < o->number && error == MPI_SUCCESS; k++) {
        error = MPI_Wait(&window[k % WINDOW], MPI_STATUS_IGNORE);
        if (o->code == LINK_RECV)
            done_ns[o->link + k] = now_ns();
        s->progress->beats++;
        if (error == MPI_SUCCESS && k + WINDOW < o->number)
            error = one_of_flood(s, o, k, &window[k % WINDOW]);
    }
    return error;
}

/* Complete everything that is outstanding. */
static int finish(struct loop *s)
{
    int error = MPI_Waitall((int)s->n_slots, s->slots, MPI_STATUSES_IGNORE);
    if (error == MPI_SUCCESS)
        error = MPI_Waitall((int)s->n_hidden, s->hidden, MPI_STATUSES_IGNORE);
    for (int64_t i = 0; i < s->n_slots; i++)
        s->slots[i] = MPI_REQUEST_NULL;
    s->n_hidden = 0;
    return error;
}

static int execute(struct loop *s, const struct op *o, int64_t *links_ns)
{
    if (leaves_request(o->code)) {
        if (s->slots[o->slot] != MPI_REQUEST_NULL)
            return BAD_EVENT; /* the request that is there would be lost */
        s->posted[o->slot] = (int)(o - s->ops);
    }
    switch (o->code) {
    case SEND:
        return MPI_Send(o->buffer, o->bytes, MPI_BYTE, o->peer, o->tag, s->messages);
    case RECV:
        return MPI_Recv(o->buffer, o->bytes, MPI_BYTE, o->peer, o->tag, s->messages,
                        MPI_STATUS_IGNORE);
    case SSEND:
        return MPI_Ssend(o->buffer, o->bytes, MPI_BYTE, o->peer, o->tag, s->messages);
    case ISEND:
        return MPI_Isend(o->buffer, o->bytes, MPI_BYTE, o->peer, o->tag, s->messages,
                         &s->slots[o->slot]);
    case ISSEND:
        return MPI_Issend(o->buffer, o->bytes, MPI_BYTE, o->peer, o->tag, s->messages,
                          &s->slots[o->slot]);
    case IRECV:
        return MPI_Irecv(o->buffer, o->bytes, MPI_BYTE, o->peer, o->tag, s->messages,
                         &s->slots[o->slot]);
    case COLLECTIVE_START:
        return collective_start(o, &s->slots[o->slot]);
    case COLLECTIVE:
        return collective(o);
    case SENDRECV:
        return MPI_Sendrecv(o->buffer, o->bytes, MPI_BYTE, o->peer, o->tag, o[1].buffer,
                            o[1].bytes, MPI_BYTE, o[1].peer, o[1].tag, s->messages,
                            MPI_STATUS_IGNORE);
    case WAIT:
        return wait_all(s, o);
    case WAITANY:
        return wait_any(s, o);
    case WAITSOME:
        return wait_some(s, o);
    case BUFFERED:
        return MPI_Isend(o->buffer, o->bytes, MPI_BYTE, o->peer, o->tag, s->messages,
                         &s->hidden[s->n_hidden++]);
    case ASK:
        return ask(s, o);
    case ANSWER:
        return answer(s, o);
    case LINK_SEND:
    case LINK_RECV:
        return flood(s, o, links_ns);
    case END:
        return finish(s);
    case SECOND:
    case NOTHING:
        return MPI_SUCCESS;
    default:
        return BAD_EVENT;
    }
}
