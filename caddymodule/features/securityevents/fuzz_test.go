package securityevents

import (
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/relyingparty"
)

// An accepted subject is not empty and has a limited length. An empty subject could match everyone.
func FuzzSubject(f *testing.F) {
	for _, seed := range []string{
		`{"format":"iss_sub","iss":"https://idp","sub":"s"}`, `{"format":"opaque","id":"s"}`, `{"format":"email","email":"a@b"}`,
		`{"format":"complex","user":{"format":"opaque","id":"s"},"session":{"format":"opaque","id":"i"}}`,
		`{"format":"complex","user":null,"session":{"format":"email","email":"x"}}`, `{"format":"complex","user":{"format":"complex"}}`, `null`, `[]`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, id string) {
		of, err := eventSubject(&relyingparty.SecurityEvent{SubjectID: []byte(id)}, "https://idp")
		if err == nil && (of == subject{} || len(of.sub)+len(of.email)+len(of.session) > 2*maxIdentifier) {
			t.Errorf("%q: %+v", id, of)
		}
	})
}
