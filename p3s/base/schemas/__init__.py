"""Published JSON Schemas of P3S's files, and what checks a file against one."""

from p3s.base.schemas.check import first_problem, load_schema

__all__ = ["first_problem", "load_schema"]
