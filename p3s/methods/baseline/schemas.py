"""Published formats of the regressions of run times."""

from p3s.base.schemas.made import Published
from p3s.methods.baseline import model
from p3s.methods.baseline.trees import store

BASELINE = Published(model.BASELINE_SCHEMA, model.BASELINE_VERSION, model.BaselineRead, more=True)
TREE = Published(store.TREE_SCHEMA, store.TREE_VERSION, store.Stored)
