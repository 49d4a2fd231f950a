from pointsman.ingest.converters.office import archive as archive
from pointsman.ingest.converters.office import open_formats as open_formats
from pointsman.ingest.converters.office import slides as slides
from pointsman.ingest.converters.office import word as word
from pointsman.ingest.converters.office import workbook as workbook
