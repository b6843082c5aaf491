package definitions

import "testing"

// A code system that came with a request is the request's own, whatever else is laid over it: an index of it would be
// made for each request.
func TestOwnCodeSystems(t *testing.T) {
	library := setOf(t, `{"resourceType":"CodeSystem","url":"http://x/loaded","status":"active","content":"complete","concept":[{"code":"a"}]}`)
	sent, err := library.With([]byte(`{"resourceType":"CodeSystem","url":"http://x/sent","status":"active","content":"complete","concept":[{"code":"a"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	for name, l := range map[string]*Set{"with it": sent, "with a value set too": sent.Overlay()} {
		for i, cs := range l.Systems.CodeSystems {
			if own := l.Systems.IsOwn(uint32(i)); own != (cs.URL == "http://x/sent") {
				t.Errorf("%s: %s is own: %v", name, cs.URL, own)
			}
		}
	}
}
