"""Documents of office programs: Word, Excel, PowerPoint, OpenDocument; and books in EPUB."""
