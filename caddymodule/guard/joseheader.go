package guard

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strings"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/json"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/strictjson"
)

// refusedParameters are the header parameters (RFC 7515 §4.1) that make a token invalid.
var refusedParameters = []string{
	"crit",                     // extensions that must be understood: we understand none
	"jwk", "jku", "x5u", "x5c", // the token brings its own key: who can forge it can sign it (RFC 8725 §3.10)
}

// joseHeader is the part of the header that is used. The decoder is strict, so there is only one reading of it.
type joseHeader struct {
	Type      string                  `json:"typ"`
	Algorithm jose.SignatureAlgorithm `json:"alg"`
	KeyID     string                  `json:"kid"`
}

// isAccessToken reports whether typ is that of an access token (RFC 9068 §2.1).
func (h joseHeader) isAccessToken() bool {
	typ := strings.ToLower(h.Type)
	return typ == "at+jwt" || typ == "application/at+jwt"
}

type headerRules struct {
	algorithms []jose.SignatureAlgorithm
	// untyped accepts a missing typ or JWT, so that the claims must identify an access token.
	untyped bool
	// unnamed accepts a missing kid.
	unnamed bool
	// signed wants an introspection response in place of an access token (RFC 9701 §5).
	signed bool
}

// isOf reports whether typ is that of what is wanted.
func (r headerRules) isOf(header joseHeader) bool {
	if r.signed {
		typ := strings.ToLower(header.Type)
		return typ == "token-introspection+jwt" || typ == signedResponse
	}
	return header.isAccessToken() || r.untyped && (header.Type == "" || strings.EqualFold(header.Type, "JWT"))
}

// ownHeader are the rules for our own tokens. An ID token (typ JWT) is meant for the client, and would pass all other
// checks if the audiences were equal (RFC 9068 §4).
var ownHeader = headerRules{algorithms: []jose.SignatureAlgorithm{algorithm}}

// trustedHeader are the rules for other issuers. Of the common ones only Auth0 supports at+jwt, and not by default;
// kid is optional in a JWS, and the [KeySet] decides about a missing one.
var trustedHeader = headerRules{algorithms: trustedAlgorithms, untyped: true, unnamed: true}

// signedResponse is the media type of introspection responses that are JWTs (RFC 9701 §5).
const signedResponse = "application/token-introspection+jwt"

// signedResponseHeader are the rules for introspection responses.
var signedResponseHeader = headerRules{algorithms: trustedAlgorithms, signed: true, unnamed: true}

// check checks the header. It is not trusted yet, and can only make the token fail.
func (r headerRules) check(raw string) (joseHeader, error) {
	header, parameters, err := parseHeader(raw)
	if err != nil {
		return header, err
	}
	if !r.isOf(header) {
		return header, errType
	}
	if !slices.Contains(r.algorithms, header.Algorithm) {
		return header, errAlgorithm
	}
	for _, name := range refusedParameters {
		if _, ok := parameters[name]; ok {
			return header, fmt.Errorf("%w: %s", errHeader, name)
		}
	}
	if header.KeyID == "" && !r.unnamed {
		return header, fmt.Errorf("%w: no kid", ErrUnknownKey)
	}
	return header, nil
}

// parseHeader reads the header of a JWS in compact form (RFC 7515 §7.1).
func parseHeader(raw string) (header joseHeader, parameters map[string]json.RawMessage, err error) {
	if len(raw) > maxTokenSize {
		return header, nil, fmt.Errorf("%w: more than %d bytes", errMalformed, maxTokenSize)
	}
	if err := checkCompact(raw); err != nil {
		return header, nil, err
	}
	encoded, _, _ := strings.Cut(raw, ".")
	decoded, err := base64.RawURLEncoding.DecodeString(encoded)
	if err != nil {
		return header, nil, fmt.Errorf("%w: header: %w", errMalformed, err)
	}
	if err := json.Unmarshal(decoded, &parameters); err != nil {
		return header, nil, fmt.Errorf("%w: header: %w", errMalformed, err)
	}
	if err := strictjson.Unmarshal(decoded, &header); err != nil {
		return header, nil, fmt.Errorf("%w: header: %w", errMalformed, err)
	}
	return header, parameters, nil
}

// checkCompact requires three parts in canonical base64url. A lenient decoder skips line breaks and ignores the spare
// bits at the end, so that many spellings, such as a changed token, would count as one.
func checkCompact(raw string) error {
	parts := strings.Split(raw, ".")
	if len(parts) != 3 {
		return fmt.Errorf("%w: %d parts", errMalformed, len(parts))
	}
	strict := base64.RawURLEncoding.Strict()
	for _, part := range parts {
		if _, err := strict.DecodeString(part); err != nil || strings.ContainsAny(part, "\r\n") {
			return fmt.Errorf("%w: not base64url", errMalformed)
		}
	}
	return nil
}

// unverifiedClaims are those of a JWT that are looked at before its signature is checked. The iss only selects the verifier,
// which then requires it: a forged one selects keys that the forger does not have. The iat only chooses between two refusals.
type unverifiedClaims struct {
	Issuer   string           `json:"iss"`
	IssuedAt *jwt.NumericDate `json:"iat"`
}

func readUnverified(raw string) (claims unverifiedClaims, err error) {
	if len(raw) > maxTokenSize {
		return claims, fmt.Errorf("%w: more than %d bytes", errMalformed, maxTokenSize)
	}
	payload, err := base64.RawURLEncoding.Strict().DecodeString(strings.Split(raw, ".")[1])
	if err == nil {
		err = json.Unmarshal(payload, &claims)
	}
	if err != nil {
		return unverifiedClaims{}, fmt.Errorf("%w: claims: %w", errMalformed, err)
	}
	return claims, nil
}
