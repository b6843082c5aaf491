package deprovisioning

import (
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/upstream"
)

// A filter means one name, which an id carries there and back, or is refused.
func FuzzFilter(f *testing.F) {
	for _, seed := range []string{`userName eq "a"`, `externalId eq "\u0000"`, `userName eq "a" or userName eq "b"`, ``, ` eq "`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		of, err := parseFilter(text)
		if err != nil {
			return
		}
		if (of.UserName == "") == (of.ExternalID == "") {
			t.Errorf("%q: %+v", text, of)
		}
		of.Named = 1
		if back, err := parseID(of.id()); err != nil || back != of {
			t.Errorf("%q: %+v, then %+v, %v", text, of, back, err)
		}
	})
}

// A subject names somebody, within bounds, or is refused: one of nobody would be everybody.
func FuzzSubject(f *testing.F) {
	for _, seed := range []string{
		`{"format":"iss_sub","iss":"https://idp","sub":"s"}`, `{"format":"opaque","id":"s"}`, `{"format":"email","email":"a@b"}`,
		`{"format":"complex","user":{"format":"opaque","id":"s"},"session":{"format":"opaque","id":"i"}}`,
		`{"format":"complex","user":null,"session":{"format":"email","email":"x"}}`, `{"format":"complex","user":{"format":"complex"}}`, `null`, `[]`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, id string) {
		of, err := subjectOf(&upstream.SecurityEvent{SubjectID: []byte(id)}, "https://idp")
		if err == nil && (of == subject{} || len(of.sub)+len(of.email)+len(of.session) > 2*maxIdentifier) {
			t.Errorf("%q: %+v", id, of)
		}
	})
}
