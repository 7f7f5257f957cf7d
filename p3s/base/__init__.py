"""What every part of P3S uses: errors, files of a study, the machine at hand, words."""
