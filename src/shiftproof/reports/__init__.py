"""Views, which hold what is to be said, and their rendering as HTML and in notebooks."""
