package scim

import "testing"

// Every accepted filter contains exactly one name, which can be encoded in an id and decoded again.
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
		of.NamedAfter = 1
		if back, err := parseID(of.id()); err != nil || back != of {
			t.Errorf("%q: %+v, then %+v, %v", text, of, back, err)
		}
	})
}
