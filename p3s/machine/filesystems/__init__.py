"""Files of typical file systems (p3s.filesystem); p3s.machine.filesystem reads them."""
