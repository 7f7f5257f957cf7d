"""Who talks to whom: relations between ranks, communicators and their members."""
