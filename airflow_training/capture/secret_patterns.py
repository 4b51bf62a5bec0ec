"""What secrets look like: well-known formats, names of variables and of files. Data only; expressions that RE2 reads too."""

from __future__ import annotations

__all__ = [
    "ASSIGNMENT",
    "EXCUSING_WORDS",
    "EXPORTED",
    "FORMATS",
    "PASSWORD_ENDS",
    "QUOTED",
    "STRONG_ENDS",
    "UNQUOTED",
    "URL",
    "WEAK_ENDS",
]

FORMATS: tuple[tuple[str, str], ...] = (
    (
        "a private key",
        r"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----(?:\\[nr]|[\s\"'+,\\])*(?:Proc-Type|Comment|Version|[A-Za-z0-9+/]{32})",
    ),
    ("a PuTTY private key", r"PuTTY-User-Key-File-[0-9]: "),
    ("an age secret key", r"AGE-SECRET-KEY-1[0-9A-Z]{50,}"),
    ("an AWS access key", r"\b(?:AKIA|ASIA|ABIA|ACCA)[A-Z2-7]{16}\b"),
    ("a GitHub token", r"\bgh[pousr]_[A-Za-z0-9]{36,}"),
    ("a GitHub token", r"\bgithub_pat_[A-Za-z0-9_]{40,}"),
    ("a GitLab token", r"\b(?:glpat|gldt|glrt|glptt)-[A-Za-z0-9_-]{20,}"),
    ("a Hugging Face token", r"\b(?:hf|api_org)_[A-Za-z]{34}\b"),
    ("a Slack token", r"\bxox[abeoprs]-[A-Za-z0-9-]{10,}"),
    ("a Slack webhook", r"hooks\.slack\.com/(?:services|workflows)/[A-Za-z0-9/]{20,}"),
    ("a Discord webhook", r"discord(?:app)?\.com/api/webhooks/[0-9]+/[A-Za-z0-9_-]{20,}"),
    ("a Google API key", r"\bAIza[A-Za-z0-9_-]{35}"),
    ("a Google OAuth secret", r"\b(?:GOCSPX-[A-Za-z0-9_-]{20,}|ya29\.[A-Za-z0-9_-]{30,})"),
    ("a Stripe key", r"\b(?:sk|rk)_(?:live|test)_[A-Za-z0-9]{20,}"),
    ("an OpenAI key", r"\bsk-(?:proj-|svcacct-|admin-)?[A-Za-z0-9_-]{20,}"),
    ("a Groq key", r"\bgsk_[A-Za-z0-9]{40,}"),
    ("a Replicate token", r"\br8_[A-Za-z0-9]{37}"),
    ("a LangSmith key", r"\blsv2_(?:pt|sk)_[a-f0-9]{32}"),
    ("a Pinecone key", r"\bpcsk_[A-Za-z0-9_]{40,}"),
    (
        "a key of Weights & Biases",
        r"\bwandb(?:\.| +)login\b[^#;]{0,80}?\b[0-9a-f]{40}\b",
    ),
    ("a Neptune token", r"\beyJhcGlf[A-Za-z0-9+/=_-]{40,}"),
    ("a SendGrid key", r"\bSG\.[A-Za-z0-9_-]{20,}\.[A-Za-z0-9_-]{40,}"),
    ("a Twilio key", r"\bSK[0-9a-f]{32}\b"),
    ("a Mailgun key", r"\bkey-[0-9a-f]{32}\b"),
    ("a Telegram bot token", r"\b[0-9]{8,10}:AA[A-Za-z0-9_-]{33}\b"),
    ("an npm token", r"\bnpm_[A-Za-z0-9]{36}"),
    ("a PyPI token", r"\bpypi-AgE[A-Za-z0-9_-]{50,}"),
    ("a Databricks token", r"\bdapi[0-9a-f]{32}"),
    ("a DigitalOcean token", r"\bdo[opr]_v1_[0-9a-f]{64}"),
    ("a Vault token", r"\bhv[sb]\.[A-Za-z0-9_-]{24,}"),
    ("a Grafana token", r"\bglsa_[A-Za-z0-9]{32}_[0-9a-f]{8}"),
    ("a Shopify token", r"\bshp(?:at|ca|pa|ss)_[0-9a-fA-F]{32}"),
    ("an Alibaba Cloud key", r"\bLTAI[A-Za-z0-9]{16,}"),
    ("a Tencent Cloud key", r"\bAKID[A-Za-z0-9]{32}"),
    ("a Docker Hub token", r"\bdckr_pat_[A-Za-z0-9_-]{27}"),
    ("an Azure storage key", r"AccountKey=[A-Za-z0-9+/]{80,}={0,2}"),
    ("a shared access signature", r"[?&]sig=[A-Za-z0-9%]{43,}"),
    (
        "a JSON web token",
        r"\beyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{20,}",
    ),
    ("a key of a kubeconfig", r"client-key-data: *[A-Za-z0-9+/=]{60,}"),
    ("a password of a netrc file", r"\bmachine\s+\S+\s+login\s+\S+\s+password\s+\S+"),
    (
        "credentials of a registry",
        r":_(?:authToken|password|auth)\s*=\s*[A-Za-z0-9+/=_-]{16,}",
    ),
)
"""What it is called, and its expression. Where two match, the first is told."""

URL = r"[A-Za-z][A-Za-z0-9+.-]*://[^\s:/@\"'<>]*:[^\s/@\"'<>]{3,}@[A-Za-z0-9.-]+"

ASSIGNMENT = (
    r"(?i)[\w.-]*(?:key|token|secret|passw(?:or)?d|passphrase|pwd|credentials?|auth|authorization)"
    r"(?:[\"'\])\\]{0,5}\s*(?:=>|:=|==?|:\s*[\w.\[\]| ]{1,30}=|:|,[^()]{0,80}\bdefault\s*=|,|\bor\b)|[ ]+)"
    r"\s*(?:\(\s*)?"
)
"""The beginning of an assignment to a name that may hold a secret, in any language: `key: str =`, `"--key", default=` too."""
EXPORTED = r"\b[A-Z][A-Z0-9_]*(?:KEY|TOKEN|SECRET|PASSWORD|PASSWD)=[^\s\"'\\(]{8}"
"""What the output of a shell holds, in whatever file."""
QUOTED = r"[rbf]?\\?(?:\"{3}|'{3}|[\"'])(?:bearer |basic |token )?[^\s\"'\\]{8}"
"""The beginning of a value where code needs quotes."""
UNQUOTED = r"(?:bearer |basic |token )?[^\s\"'\\(]{8}"

STRONG_ENDS = (
    "apikey",
    "secret",
    "secretkey",
    "secretaccesskey",
    "accesskey",
    "accesstoken",
    "authtoken",
    "apitoken",
    "bearertoken",
    "refreshtoken",
    "privatekey",
    "encryptionkey",
    "signingkey",
    "fernetkey",
    "authkey",
    "accountkey",
    "licensekey",
    "authorization",
    "credential",
    "credentials",
    "clientsecret",
)
"""How names of secrets end, without separators."""
WEAK_ENDS = ("key", "token", "auth")
"""Names that mostly mean something else."""
PASSWORD_ENDS = ("password", "passwd", "pwd", "passphrase")

_EXCUSES = (
    "pad eos bos unk sep cls mask special image audio video start end stop next prev current num max min n"
    " per vocab tokenizer type types count length dim file path public primary foreign sort cache partition"
    " map head query hash index column row group item label dict metric state input output image prompt"
    " placeholder initializer trigger generated decoder encoder forced suppress begin cross attention rng prng seed object blob"
)
EXCUSING_WORDS = frozenset(_EXCUSES.split())
"""Words in a name with which a key or token is none."""
