"""Programs of a master and workers: a queue of tasks, and a model of an iteration."""

from p3s.base.extensions import Extension

EXTENSION = Extension("tasks", structures=("p3s.methods.tasks.structure:structure",))
