"""What programs say and are told: values, words, names, durations, errors. No I/O, nothing of the wire."""
