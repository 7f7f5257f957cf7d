"""Files of typical clusters (p3s.cluster); p3s.machine.cluster reads them."""
