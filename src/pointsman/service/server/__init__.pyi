from pointsman.service.server.access.request_access import Access as Access
from pointsman.service.server.app import create_app as create_app
from pointsman.service.server.access.api_keys import KeyStore as KeyStore
from pointsman.service.server.protocol.request_limits import Limits as Limits
from pointsman.service.server.run import serve as serve

__all__: list[str]
