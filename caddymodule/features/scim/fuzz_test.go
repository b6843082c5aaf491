package scim

import "testing"

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
