"""What a site's folder tells the people of the hospital: how it stands, and what left it."""
