package guard

import (
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"strings"
	"testing"
)

// TestClaimsAsHeaders rejects tokens of every kind with a claim that the next server would read differently: the site may
// send each of these claims in an HTTP header field.
func TestClaimsAsHeaders(t *testing.T) {
	t.Parallel()
	auth0 := providerNamed(t, "Auth0")
	verifiers := map[string]func(claims map[string]any) error{
		"own": func(claims map[string]any) error {
			_, err := testVerifier().Verify(t.Context(), mint{claims: claims}.token(t))
			return err
		},
		"trusted": func(claims map[string]any) error {
			changes := map[string]any{"azp": nil, "client_id": "app"}
			maps.Copy(changes, claims)
			_, err := auth0.trusted().Verify(t.Context(), auth0.token(t, auth0.access, changes))
			return err
		},
		"introspection": func(claims map[string]any) error {
			response, err := json.Marshal(merge(map[string]any{"active": true, "sub": "alice", "client_id": "app"}, claims))
			if err != nil {
				t.Fatal(err)
			}
			_, err = testIntrospector(answering(string(response))).Verify(t.Context(), "opaque")
			return err
		},
	}
	bad := map[string]string{
		"space behind": "alice ", "space before": " alice", "a space alone": " ", "tab": "alice\t", "NUL": "ali\x00ce", "CR LF": "alice\r\nX-Admin: 1",
		"LF": "alice\n", "DEL": "alice\x7f", "not ASCII": "älice", "no-break space": "alice\u00a0", "line separator": "alice\u2028",
	}
	good := map[string]string{"plain": "alice", "space inside": "Alice Adams", "Auth0's": "auth0|1", "an address": "alice@hospital.example"}
	for kind, verify := range verifiers {
		for _, claim := range []string{"sub", "client_id", "scope", "patient", "fhirUser"} {
			values := maps.Clone(bad)
			if claim == "sub" || claim == "client_id" {
				values["256 characters"] = strings.Repeat("x", 256)
			}
			if claim == "scope" && kind != "own" { // read as a list of words, whose spaces do not remain
				delete(values, "space behind")
				delete(values, "space before")
				delete(values, "a space alone")
			}
			for name, value := range values {
				err := verify(map[string]any{claim: value})
				refused, ok := errors.AsType[*Error](err)
				if claim == "scope" && kind == "introspection" && ok { // 503: a response that cannot be read answers nothing
					continue
				}
				if !ok || refused.Status != http.StatusUnauthorized || refused.Code != codeInvalidToken {
					t.Errorf("%s, %s, %s: %v", kind, claim, name, err)
				} else if found, ok := errors.AsType[*ClaimError](err); claim != "scope" && (!ok || found.Claim != claim || found.Expected == "") {
					t.Errorf("%s, %s, %s: the log does not name the claim: %v", kind, claim, name, err)
				}
			}
			for name, value := range good {
				if err := verify(map[string]any{claim: value}); err != nil {
					t.Errorf("%s, %s, %s: %v", kind, claim, name, err)
				}
			}
		}
	}
}
