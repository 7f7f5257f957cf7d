"""From runs to a prediction: what is missing or out of date, and making it."""
