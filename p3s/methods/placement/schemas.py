"""Published formats of placements."""

from p3s.base.schemas.made import Published
from p3s.methods.placement import learned
from p3s.methods.placement.ranked import file
from p3s.methods.placement.ranked.types import Placements
from p3s.methods.placement.training import card, dataset

PLACEMENTS = Published(file.SCHEMA, file.VERSION, Placements)
MODEL = Published(learned.SCHEMA, learned.VERSION, learned.LearnedRead, more=True, show=card.shown)
PHASES = Published(dataset.SCHEMA, dataset.VERSION, dataset.Told, more=True)
