from .messages import LeafMessage as LeafMessage
from .signed_log import SignedLog as SignedLog
