# SPDX-License-Identifier: Apache-2.0
"""Certificates for the TLS tests: a CA of one's own, and good and bad certificates by it."""
import datetime
import os
import ssl
import warnings

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

DAY = datetime.timedelta(days=1)


def key_pem(key):
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8,
                             serialization.NoEncryption())


def subject(names):
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, n) for n in names])


class Authority:
    """A CA; files go into `folder` as NAME.pem and NAME.key."""

    def __init__(self, folder, name="ca", parent=None):
        self.folder = folder
        self.name = name
        self.key = ec.generate_private_key(ec.SECP256R1())
        signer = parent or self
        now = datetime.datetime.utcnow()
        self.certificate = (
            x509.CertificateBuilder().subject_name(subject([name]))
            .issuer_name(signer.certificate.subject if parent else subject([name]))
            .public_key(self.key.public_key()).serial_number(x509.random_serial_number())
            .not_valid_before(now - DAY).not_valid_after(now + 30 * DAY)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(signer.key, hashes.SHA256()))
        self.path = folder / f"{name}.pem"
        self.path.write_bytes(self.pem)

    @property
    def pem(self):
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    def issue(self, name, common=None, dns=(), uris=(), purposes=("client",), days=(-1, 30), key=None,
              self_signed=False, chain=()):
        """Files NAME.pem and NAME.key; common: a name or several (None: as `name`; (): none)."""
        key = key or ec.generate_private_key(ec.SECP256R1())
        own = subject([name] if common is None else [common] if isinstance(common, str) else common)
        now = datetime.datetime.utcnow()
        oids = {"client": ExtendedKeyUsageOID.CLIENT_AUTH, "server": ExtendedKeyUsageOID.SERVER_AUTH}
        builder = (x509.CertificateBuilder().subject_name(own)
                   .issuer_name(own if self_signed else self.certificate.subject)
                   .public_key(key.public_key()).serial_number(x509.random_serial_number())
                   .not_valid_before(now + days[0] * DAY).not_valid_after(now + days[1] * DAY)
                   .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True))
        if purposes:
            builder = builder.add_extension(x509.ExtendedKeyUsage([oids[p] for p in purposes]), critical=False)
        alternative = [x509.DNSName(d) for d in dns] + [x509.UniformResourceIdentifier(u) for u in uris]
        if alternative:
            builder = builder.add_extension(x509.SubjectAlternativeName(alternative), critical=False)
        certificate = builder.sign(key if self_signed else self.key, hashes.SHA256())
        pem = certificate.public_bytes(serialization.Encoding.PEM) + b"".join(c.pem for c in chain)
        return Pair(self.folder, name, pem, key)


class Pair:
    def __init__(self, folder, name, pem, key):
        self.certificate = folder / f"{name}.pem"
        self.key = folder / f"{name}.key"
        self.certificate.write_bytes(pem)
        if self.key.exists():
            self.key.unlink()
        fd = os.open(self.key, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        os.write(fd, key_pem(key))
        os.close(fd)


def weak_key():
    return rsa.generate_private_key(65537, 1024)


def client_context(ca, pair=None, version=None, name_checked=False):
    """A client of a server whose certificate `ca` (a path) has signed; with pair's certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(ca)
    context.check_hostname = name_checked
    context.set_ciphers("DEFAULT@SECLEVEL=0")
    if version:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # old ones are asked for on purpose
            context.minimum_version = context.maximum_version = version
    if pair:
        context.load_cert_chain(pair.certificate, pair.key)
    return context
