"""Laws: expressions as data, and finding them in what was counted or measured."""
