package guard

import (
	"encoding/base64"
	"fmt"
	"strings"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/json"
)

// algorithm is the one signature algorithm of access tokens. The list of
// RFC 8725 §3.1 is as short as can be: none and HS256 are forgeries, and
// RS256 signs ID tokens.
const algorithm = jose.ES256

// refusedParameters are the header parameters (RFC 7515 §4.1) that make a
// token invalid.
var refusedParameters = []string{
	"crit",                     // extensions that must be understood: we understand none
	"jwk", "jku", "x5u", "x5c", // the token brings its own key: who can forge it can sign it (RFC 8725 §3.10)
}

// joseHeader is the part of the header that is read. The decoder refuses
// repeated names and minds their case, so there is one reading of it only.
type joseHeader struct {
	Type      string `json:"typ"`
	Algorithm string `json:"alg"`
	KeyID     string `json:"kid"`
}

// checkHeader checks what the header says and returns the kid. Nothing of it
// is trusted yet; it can only make the token fail.
func checkHeader(raw string) (kid string, err error) {
	header, parameters, err := parseHeader(raw)
	if err != nil {
		return "", err
	}
	// RFC 9068 §4: an ID token (typ JWT) is for the client, and would pass all
	// else where the audiences are alike.
	if typ := strings.ToLower(header.Type); typ != "at+jwt" && typ != "application/at+jwt" {
		return "", ErrType
	}
	if header.Algorithm != string(algorithm) {
		return "", ErrAlgorithm
	}
	for _, name := range refusedParameters {
		if _, ok := parameters[name]; ok {
			return "", fmt.Errorf("%w: %s", ErrHeader, name)
		}
	}
	if header.KeyID == "" {
		return "", fmt.Errorf("%w: no kid", ErrUnknownKey)
	}
	return header.KeyID, nil
}

// parseHeader reads the header of a JWS in compact form (RFC 7515 §7.1).
func parseHeader(raw string) (header joseHeader, parameters map[string]json.RawMessage, err error) {
	if len(raw) > MaxTokenSize {
		return header, nil, fmt.Errorf("%w: more than %d bytes", ErrMalformed, MaxTokenSize)
	}
	if err := checkCompact(raw); err != nil {
		return header, nil, err
	}
	encoded, _, _ := strings.Cut(raw, ".")
	decoded, err := base64.RawURLEncoding.DecodeString(encoded)
	if err != nil {
		return header, nil, fmt.Errorf("%w: header: %w", ErrMalformed, err)
	}
	if err := json.Unmarshal(decoded, &parameters); err != nil {
		return header, nil, fmt.Errorf("%w: header: %w", ErrMalformed, err)
	}
	if err := json.Unmarshal(decoded, &header); err != nil {
		return header, nil, fmt.Errorf("%w: header: %w", ErrMalformed, err)
	}
	return header, parameters, nil
}

// checkCompact checks for three parts in canonical base64url. A lenient
// decoder skips line breaks and ignores the last part's spare bits, and would
// take many spellings for one token (a changed or extended one for valid).
func checkCompact(raw string) error {
	parts := strings.Split(raw, ".")
	if len(parts) != 3 {
		return fmt.Errorf("%w: %d parts", ErrMalformed, len(parts))
	}
	strict := base64.RawURLEncoding.Strict()
	for _, part := range parts {
		if _, err := strict.DecodeString(part); err != nil || strings.ContainsAny(part, "\r\n") {
			return fmt.Errorf("%w: not base64url", ErrMalformed)
		}
	}
	return nil
}
