"""SimGrid: platforms, time-independent traces, and smpirun that replays them."""
