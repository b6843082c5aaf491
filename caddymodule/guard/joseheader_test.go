package guard

import (
	"crypto/x509"
	"encoding/base64"
	"strings"
	"testing"

	"github.com/go-jose/go-jose/v4"
)

func TestVerifyHeader(t *testing.T) {
	t.Parallel()
	header := func(name jose.HeaderKey, value any) mint { return mint{header: map[jose.HeaderKey]any{name: value}} }
	public, err := x509.MarshalPKIXPublicKey(&signingKey().PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	ownKey := jose.JSONWebKey{Key: &secondKey().PublicKey, Algorithm: "ES256", Use: "sig"}
	for _, test := range []struct {
		name string
		mint mint
		want error
	}{
		{"ID token", header("typ", "JWT"), errType},
		{"ID token signed RS256", mint{alg: jose.RS256, key: rsaKey(), header: map[jose.HeaderKey]any{"typ": "JWT", "kid": "rsa"}}, errType},
		{"no typ", header("typ", nil), errType},
		{"typ of a logout token", header("typ", "logout+jwt"), errType},
		{"typ of another application", header("typ", "text/at+jwt"), errType},
		{"HS256 with the public key", mint{alg: jose.HS256, key: public}, errAlgorithm},
		{"RS256", mint{alg: jose.RS256, key: rsaKey(), header: map[jose.HeaderKey]any{"kid": "rsa"}}, errAlgorithm},
		{"ES384", mint{alg: jose.ES384, key: p384Key(), header: map[jose.HeaderKey]any{"kid": "p384"}}, errAlgorithm},
		{"kid of an RSA key", header("kid", "rsa"), errAlgorithm},
		{"kid of an RSA key said to be ES256", header("kid", "rsa-es256"), errAlgorithm},
		{"kid of a P-384 key", header("kid", "p384"), errAlgorithm},
		{"kid of a P-384 key said to be ES256", header("kid", "p384-es256"), errAlgorithm},
		{"kid of a key without alg", header("kid", "no-alg"), errAlgorithm},
		{"kid of an encryption key", header("kid", "encryption"), errAlgorithm},
		{"no kid", header("kid", nil), ErrUnknownKey},
		{"empty kid", header("kid", ""), ErrUnknownKey},
		{"unknown kid", header("kid", "third"), ErrUnknownKey},
		{"kid of another key", header("kid", "second"), ErrSignature},
		{"another issuer's key", mint{key: secondKey()}, ErrSignature},
		{"crit", header("crit", []string{"exp"}), errHeader},
		{"crit that go-jose knows", mint{header: map[jose.HeaderKey]any{"crit": []string{"b64"}, "b64": true}}, errHeader},
		{"empty crit", header("crit", []string{}), errHeader},
		{"its own key in jwk", mint{key: secondKey(), header: map[jose.HeaderKey]any{"jwk": ownKey}}, errHeader},
		{"its own key in jku", mint{key: secondKey(), header: map[jose.HeaderKey]any{"jku": "https://evil.example/jwks"}}, errHeader},
		{"its own key in x5u", mint{key: secondKey(), header: map[jose.HeaderKey]any{"x5u": "https://evil.example/x509"}}, errHeader},
		{"its own key in x5c", mint{key: secondKey(), header: map[jose.HeaderKey]any{"x5c": []string{}}}, errHeader},
		{"jwk even of the right key", header("jwk", jose.JSONWebKey{Key: &signingKey().PublicKey}), errHeader},
		{"typ no text", header("typ", 1), errMalformed},
	} {
		t.Run(test.name, func(t *testing.T) {
			wantRefused(t, testVerifier(), test.mint.token(t), test.want)
		})
	}
}

func TestVerifyMalformed(t *testing.T) {
	t.Parallel()
	token := mint{}.token(t)
	parts := strings.Split(token, ".")
	encode := base64.RawURLEncoding.EncodeToString
	signature, err := base64.RawURLEncoding.DecodeString(parts[2])
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name, token string
		want        error
	}{
		{"nothing", "", errMalformed},
		{"no JWT", "opaque", errMalformed},
		{"two parts", parts[0] + "." + parts[1], errMalformed},
		{"four parts", token + "." + parts[2], errMalformed},
		{"five parts, as a JWE", token + ".a.b", errMalformed},
		{"alg none", encode([]byte(`{"typ":"at+jwt","alg":"none","kid":"first"}`)) + "." + parts[1] + ".", errAlgorithm},
		{"alg NonE", encode([]byte(`{"typ":"at+jwt","alg":"NonE","kid":"first"}`)) + "." + parts[1] + ".", errAlgorithm},
		{"no alg", encode([]byte(`{"typ":"at+jwt","kid":"first"}`)) + "." + parts[1] + "." + parts[2], errAlgorithm},
		{"two algs", encode([]byte(`{"typ":"at+jwt","alg":"none","alg":"ES256","kid":"first"}`)) + "." + parts[1] + "." + parts[2], errMalformed},
		{"Alg for alg", encode([]byte(`{"typ":"at+jwt","Alg":"ES256","kid":"first"}`)) + "." + parts[1] + "." + parts[2], errMalformed},
		{"a claim in two cases", mint{claims: map[string]any{"SUB": "bob"}}.token(t), errMalformed},
		{"header no object", encode([]byte(`"at+jwt"`)) + "." + parts[1] + "." + parts[2], errMalformed},
		{"no signature", parts[0] + "." + parts[1] + ".", ErrSignature},
		{"another's claims", parts[0] + "." + strings.Split(mint{claims: map[string]any{"sub": "bob"}}.token(t), ".")[1] + "." + parts[2], ErrSignature},
		{"truncated by one", token[:len(token)-1], errMalformed},
		{"signature truncated by a byte", parts[0] + "." + parts[1] + "." + encode(signature[:63]), ErrSignature},
		{"signature extended by a byte", parts[0] + "." + parts[1] + "." + encode(append(signature, 0)), ErrSignature},
		{"extended by one", token + "A", ErrSignature},
		{"extended by four", token + "AAAA", ErrSignature},
		{"padded", token + "==", errMalformed},
		{"last bits changed", lastBitsChanged(token), errMalformed},
		{"line break within", token[:20] + "\n" + token[20:], errMalformed},
		{"space before", " " + token, errMalformed},
		{"JSON serialization", `{"payload":"","signatures":[]}`, errMalformed},
		{"claims no object", mint{}.sign(t, []byte(`[]`)), errMalformed},
		{"claims no JSON", mint{}.sign(t, []byte(`{"iss"`)), errMalformed},
		{"claims twice", mint{}.sign(t, []byte(`{"sub":"alice","sub":"bob"}`)), errMalformed},
		{"too long", mint{claims: map[string]any{"scope": strings.Repeat("a", maxTokenSize)}}.token(t), errMalformed},
	} {
		t.Run(test.name, func(t *testing.T) {
			wantRefused(t, testVerifier(), test.token, test.want)
		})
	}
}

// lastBitsChanged changes the bits of the last character that a lenient
// base64 decoder does not look at: the signature decodes to the same bytes.
func lastBitsChanged(token string) string {
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	last := strings.IndexByte(alphabet, token[len(token)-1])
	return token[:len(token)-1] + string(alphabet[last^1])
}
