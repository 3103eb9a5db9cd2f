"""Reports for people, made of data that others read: as Markdown, as HTML, or line by line."""
