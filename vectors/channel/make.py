"""Writes the vectors of docs/channel.md from the description alone, in another language.

    python3 vectors/channel/make.py
"""
import hashlib, json, os
def head(m,n):
    m<<=5
    if n<24: return bytes([m|n])
    if n<256: return bytes([m|24,n])
    if n<65536: return bytes([m|25])+n.to_bytes(2,'big')
    if n<2**32: return bytes([m|26])+n.to_bytes(4,'big')
    return bytes([m|27])+n.to_bytes(8,'big')
u=lambda n: head(0,n)
b=lambda x: head(2,len(x))+x
t=lambda s: head(3,len(s.encode()))+s.encode()
arr=lambda *xs: head(4,len(xs))+b''.join(xs)
def m(pairs): return head(5,len(pairs))+b''.join(t(k)+v for k,v in pairs)
null=b'\xf6'
tag=lambda n,x: head(6,n)+x
K=hashlib.sha256(b"a public key").digest(); C=hashlib.sha256(b"a configuration").digest()
def pairs(nonce=None,g="operator is outside the TEE",na=1800003600,nb=1800000000,k=K,c=C,v=1,alg=1):
    p=[("nonce",b(nonce))] if nonce is not None else []
    return p+[("guarantee",t(g)),("not-after",u(na)),("not-before",u(nb)),("pubkey-hash",arr(u(alg),b(k))),("config-digest",b(c)),("confide-version",u(v))]
def fields(nonce=None,g="operator is outside the TEE",na=1800003600,nb=1800000000,k=K,c=C):
    return {"config-digest":c.hex(),"guarantee":g,"nonce":nonce.hex() if nonce is not None else None,"not-after":na,"not-before":nb,"pubkey-hash":k.hex()}
good=m(pairs())
A=lambda name,**kw: {"name":name,"bytes":m(pairs(**kw)).hex(),"claims":fields(**kw)}
R=lambda name,by,err: {"name":name,"bytes":by.hex(),"error":err}
cases=[A("claims without a nonce"),A("claims with a nonce",nonce=bytes(range(32))),A("the other guarantee",g="gateway only"),
 A("numbers of one, two, five and nine bytes",nb=23,na=2**40),
 A("the same instant twice",nb=24,na=24),A("longest guarantee",g="g"*256),A("shortest nonce",nonce=bytes(8)),A("longest nonce",nonce=bytes(64)),
 R("empty input",b'',"malformed"),R("cut by one byte",good[:-1],"malformed"),R("one byte after the end",good+b'\0',"not_canonical"),
 R("indefinite map",b'\xbf'+good[1:]+b'\xff',"malformed"),
 R("keys in another order",m(pairs()[::-1]),"not_canonical"),
 R("length of a text in a longer form",good.replace(t("guarantee"),b'\x78\x09guarantee'),"not_canonical"),
 R("a key twice",m(pairs()+[("guarantee",t("x"))]),"duplicate_key"),
 R("an unknown key",m(pairs()+[("zz",u(1))]),"unknown_key"),
 R("a number for a key",head(5,1)+u(1)+u(1),"malformed"),
 R("no config-digest",m([p for p in pairs() if p[0]!="config-digest"]),"missing"),
 R("no pubkey-hash",m([p for p in pairs() if p[0]!="pubkey-hash"]),"missing"),
 R("version 2",m(pairs(v=2)),"version"),
 R("pubkey-hash by sha-384",m(pairs(alg=7)),"hash_algorithm"),
 R("pubkey-hash of 31 bytes",m(pairs(k=K[:31])),"digest_length"),
 R("config-digest of 48 bytes",m(pairs(c=C+C[:16])),"digest_length"),
 R("empty guarantee",m(pairs(g="")),"guarantee_length"),
 R("guarantee of 257 bytes",m(pairs(g="g"*257)),"guarantee_length"),
 R("guarantee with an escape sequence",m(pairs(g="a\x1b[2J")),"guarantee_control_character"),
 R("nonce of 7 bytes",m(pairs(nonce=bytes(7))),"nonce_length"),
 R("nonce of 65 bytes",m(pairs(nonce=bytes(65))),"nonce_length"),
 R("validity that ends before it begins",m(pairs(nb=2,na=1)),"validity_reversed"),
 R("negative not-before",good.replace(t("not-before")+u(1800000000),t("not-before")+b'\x20'),"malformed"),
 R("longer than 1024 bytes",good+bytes(1024),"too_long")]
out = os.path.dirname(os.path.abspath(__file__))
def w(n,about,cases): json.dump({"about":about,"cases":cases},open(f"{out}/{n}",'w'),indent=2); open(f"{out}/{n}",'a').write("\n")
w("claims.json","Encodings of claims (docs/channel.md, Claims). `bytes` is hex. A case has `claims`, which the bytes hold and encode to again, or `error`, the reason for which they are rejected.",cases)
q=b"quote"
ok=lambda name,by,**f: {"name":name,"bytes":by.hex(),**{k:v.hex() for k,v in f.items()}}
cases=[ok("evidence",tag(60000,arr(b(q),b(good))),quote=q,claims=good),ok("a long quote",tag(60000,arr(b(bytes(300)),b(good))),quote=bytes(300),claims=good),
 ok("collateral",tag(60000,arr(b(b'{}'))),collateral=b'{}'),
 R("another tag",tag(60001,arr(b(q),b(good))),"tag"),R("no tag",arr(b(q),b(good)),"tag"),R("empty input",b'',"tag"),
 R("three members",tag(60000,arr(b(q),b(good),b(q))),"array"),R("an indefinite array",tag(60000,b'\x9f'+b(q)+b(good)+b'\xff'),"array"),
 R("a text for a quote",tag(60000,arr(t("quote"),b(good))),"malformed"),R("cut in the claims",tag(60000,arr(b(q),b(good)))[:-1],"malformed"),
 R("an empty quote",tag(60000,arr(b(b''),b(good))),"empty"),R("empty claims",tag(60000,arr(b(q),b(b''))),"empty"),
 R("claims of 1025 bytes",tag(60000,arr(b(q),b(bytes(1025)))),"too_long"),
 R("a length in a longer form",tag(60000,arr(b'\x58\x05quote',b(good))),"not_canonical"),
 R("one byte after the end",tag(60000,arr(b(q),b(good)))+b'\0',"not_canonical")]
w("tagged_evidence.json","Content of certificate extensions 2.23.133.5.4.9 (`quote` and `claims`) and 2.23.133.5.4.2 (`collateral`), CBOR tag 60000 (docs/channel.md, Key binding). All values are hex.",cases)
cases=[]
for claims in (good,m(pairs(nonce=bytes(range(32)))),m(pairs(g="gateway only"))):
    cases.append({"name":f"key binding {len(cases)+1}","binding":"key","claims":claims.hex(),"report_data":(hashlib.sha256(claims).digest()+bytes(32)).hex()})
n=0
for role in ("server","client"):
  for spki,exp,claims in ((K,bytes(range(32)),good),(K,bytes(range(32,64)),good),(C,bytes(range(32)),good),(K,bytes(range(32)),m(pairs(g="gateway only")))):
    n+=1
    rd=hashlib.sha512(b"confide attestation v1\0"+bytes([1 if role=="server" else 2])+spki+exp+hashlib.sha256(claims).digest()).hexdigest()
    cases.append({"name":f"session binding {n}","binding":"session","role":role,"spki_hash":spki.hex(),"exporter":exp.hex(),"claims":claims.hex(),"report_data":rd})
w("binder.json","Report data of both bindings with all inputs (docs/channel.md, Binders). All values are hex.",cases)
ctx=bytes(range(32)); ev=arr(b(q),b(good),b(b'{}')); bare=arr(b(q),b(good),null)
M=lambda name,by,**kw: {"name":name,"bytes":by.hex(),**kw}
E={"quote":q.hex(),"claims":good.hex(),"collateral":b'{}'.hex()}; EB={**E,"collateral":None}
cases=[M("request",arr(u(1),b(ctx)),kind="request",context=ctx.hex()),M("request for no evidence",arr(u(1),null),kind="request",context=None),
 M("reply",arr(u(2),null,ev),kind="reply",context=None,evidence=E),M("reply that demands",arr(u(2),b(ctx),bare),kind="reply",context=ctx.hex(),evidence=EB),
 M("reply without evidence",arr(u(2),b(ctx),null),kind="reply",context=ctx.hex(),evidence=None),
 M("evidence",arr(u(3),ev),kind="evidence",evidence=E),M("accepted",arr(u(4)),kind="accepted")]+[M(f"refused {c}",arr(u(0),u(c)),kind="refused",code=c) for c in range(1,6)]+[
 R("empty input",b'',"malformed"),R("a map",m([]),"malformed"),R("kind 5",arr(u(5)),"kind"),R("accepted with a member",arr(u(4),null),"members"),
 R("context of 16 bytes",arr(u(1),b(bytes(16))),"context_length"),R("context of 33 bytes",arr(u(1),b(bytes(33))),"context_length"),R("empty context",arr(u(1),b(b'')),"context_length"),
 R("refusal 0",arr(u(0),u(0)),"refusal_code"),R("refusal 6",arr(u(0),u(6)),"refusal_code"),R("empty quote",arr(u(3),arr(b(b''),b(good),null)),"empty"),
 R("evidence of two",arr(u(3),arr(b(q),b(good))),"malformed"),R("claims of 1025 bytes",arr(u(3),arr(b(q),b(bytes(1025)),null)),"too_long"),
 R("one byte after the end",arr(u(4))+b'\0',"not_canonical"),R("a kind in a longer form",b'\x81\x18\x04',"not_canonical")]
w("session_message.json","Messages of the session exchange, without the frame's length (docs/channel.md, Session binding). Values are hex.",cases)
