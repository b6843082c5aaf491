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
		`{"format":"account","uri":"acct:a%40b@c"}`, `{"format":"aliases","identifiers":[{"format":"email","email":"a@b"},{"format":"phone_number"}]}`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, id string) {
		all, err := eventSubjects(&relyingparty.SecurityEvent{Issuer: "https://idp", SubjectID: []byte(id)})
		if err == nil && (len(all) == 0 || len(all) > maxAliases) {
			t.Errorf("%q: %d subjects", id, len(all))
		}
		for _, of := range all {
			if err == nil && (of == subject{} || len(of.sub)+len(of.id)+len(of.name)+len(of.session) > 2*maxIdentifier) {
				t.Errorf("%q: %+v", id, of)
			}
		}
	})
}
