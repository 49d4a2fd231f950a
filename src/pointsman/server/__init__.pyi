from .access import Access as Access
from .app import create_app as create_app
from .keys import KeyStore as KeyStore
from .limits import Limits as Limits
from .run import serve as serve

__all__: list[str]
