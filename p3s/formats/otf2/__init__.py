"""OTF2 archives (https://www.vi-hps.org/projects/otf2): the library, and archives as captures."""
