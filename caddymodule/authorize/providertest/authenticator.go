package providertest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
)

// Authenticator is a software passkey. It also performs the tasks of the browser (Web Authentication Level 3).
type Authenticator struct {
	Origin            string // origin of the page
	RPID              string // relying party id of the passkey
	UserHandle        []byte // user handle of the passkey
	SignCount         uint32 // signature counter; not increased if 0
	BackupEligible    bool   // whether the passkey can be backed up
	SkipsVerification bool   // whether to respond without verifying the user

	id  []byte
	key *ecdsa.PrivateKey
}

type credentialOptions struct {
	Challenge string `json:"challenge"`
	User      struct {
		ID string `json:"id"`
	} `json:"user"`
}

type credentialResponse struct {
	ID       string            `json:"id"`
	RawID    string            `json:"rawId"`
	Type     string            `json:"type"`
	Response map[string]string `json:"response"`
}

// Create creates a passkey with the options of navigator.credentials.create and returns the response as JSON.
func (a *Authenticator) Create(options string) (string, error) {
	var o credentialOptions
	if err := json.Unmarshal([]byte(options), &o); err != nil {
		return "", err
	}
	var err error
	if a.UserHandle, err = base64.RawURLEncoding.DecodeString(o.User.ID); err != nil {
		return "", err
	}
	if a.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return "", err
	}
	a.id = make([]byte, 16)
	rand.Read(a.id) // never returns an error
	public, err := a.coseKey()
	if err != nil {
		return "", err
	}
	data := append(a.data(0x40), make([]byte, 16)...) // the AAGUID is empty
	data = binary.BigEndian.AppendUint16(data, uint16(len(a.id)))
	data = append(append(data, a.id...), public...)
	object := append([]byte("\xa3\x63fmt\x64none\x67attStmt\xa0\x68authData"), cborBytes(data)...)
	return a.encodeResponse(map[string]string{
		"clientDataJSON":    encode(a.clientData("webauthn.create", o.Challenge)),
		"attestationObject": encode(object),
	})
}

// Get returns the response to the options of navigator.credentials.get, as JSON.
func (a *Authenticator) Get(options string) (string, error) {
	var o credentialOptions
	if err := json.Unmarshal([]byte(options), &o); err != nil {
		return "", err
	}
	if a.SignCount > 0 {
		a.SignCount++
	}
	client, data := a.clientData("webauthn.get", o.Challenge), a.data(0)
	hash := sha256.Sum256(client)
	sum := sha256.Sum256(append(data, hash[:]...))
	signature, err := ecdsa.SignASN1(rand.Reader, a.key, sum[:])
	if err != nil {
		return "", err
	}
	return a.encodeResponse(map[string]string{
		"clientDataJSON": encode(client), "authenticatorData": encode(data),
		"signature": encode(signature), "userHandle": encode(a.UserHandle),
	})
}

func (a *Authenticator) encodeResponse(response map[string]string) (string, error) {
	text, err := json.Marshal(credentialResponse{encode(a.id), encode(a.id), "public-key", response})
	return string(text), err
}

func (a *Authenticator) clientData(typ, challenge string) []byte {
	text, err := json.Marshal(map[string]any{"type": typ, "challenge": challenge, "origin": a.Origin, "crossOrigin": false})
	if err != nil {
		panic(err) // cannot fail: the value contains only strings
	}
	return text
}

// data returns the authenticator data (Web Authentication §6.1).
func (a *Authenticator) data(flags byte) []byte {
	flags |= 0x01 // user present
	if !a.SkipsVerification {
		flags |= 0x04
	}
	if a.BackupEligible {
		flags |= 0x08 | 0x10
	}
	hash := sha256.Sum256([]byte(a.RPID))
	return binary.BigEndian.AppendUint32(append(hash[:], flags), a.SignCount)
}

// coseKey returns the public key as a COSE key (RFC 9053 §7.1.1) with kty EC2, alg ES256 and crv P-256.
func (a *Authenticator) coseKey() ([]byte, error) {
	point, err := a.key.PublicKey.Bytes()
	if err != nil {
		return nil, err
	}
	key := append([]byte("\xa5\x01\x02\x03\x26\x20\x01\x21"), cborBytes(point[1:33])...)
	return append(append(key, 0x22), cborBytes(point[33:])...), nil
}

// cborBytes encodes a byte string in CBOR (RFC 8949 §3.1).
func cborBytes(b []byte) []byte {
	return append(binary.BigEndian.AppendUint16([]byte{0x59}, uint16(len(b))), b...)
}

func encode(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }
