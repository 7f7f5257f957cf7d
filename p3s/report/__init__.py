"""Reports: one view model, shown on the terminal, as one offline HTML file and as a picture."""
