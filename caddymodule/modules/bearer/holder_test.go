package bearer

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/enforce"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
)

// What a token may do is kept with it, but for what another record decides, and for what it was under another user.
func TestHolderIsKept(t *testing.T) {
	t.Parallel()
	e := &enforcement{&enforce.Enforcer{Base: "/fhir", Shared: enforce.NewShared(nil)}}
	empty := caddyhttp.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) error {
		w.WriteHeader(http.StatusNotFound)
		return nil
	})
	for _, tt := range []struct {
		name            string
		before, now     guard.Token
		kept, mayRead   bool
		mayReadAsBefore bool
	}{
		{"the same", guard.Token{Scope: "user/*.rs", FHIRUser: "Practitioner/1"}, guard.Token{Scope: "user/*.rs", FHIRUser: "Practitioner/1"}, true, true, true},
		{"no practitioner any more", guard.Token{Scope: "user/*.rs", FHIRUser: "Practitioner/1"}, guard.Token{Scope: "user/*.rs"}, false, false, true},
		{"a related person", guard.Token{Scope: "user/*.rs", FHIRUser: "RelatedPerson/1"}, guard.Token{Scope: "user/*.rs", FHIRUser: "RelatedPerson/1"}, false, false, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := httptest.NewRequest(http.MethodGet, "/fhir/Patient/1", nil)
			memo := new(guard.Memo)
			tt.before.Memo, tt.now.Memo = memo, memo
			first, err := e.holderOf(r, empty, &tt.before)
			if err != nil || (len(first.rights.For("Patient", smart.Read)) > 0) != tt.mayReadAsBefore {
				t.Fatalf("%+v, %v", first, err)
			}
			second, err := e.holderOf(r, empty, &tt.now)
			if err != nil || (len(second.rights.For("Patient", smart.Read)) > 0) != tt.mayRead || (first == second) != tt.kept {
				t.Errorf("%+v, %v, kept: %t", second, err, first == second)
			}
		})
	}
}
