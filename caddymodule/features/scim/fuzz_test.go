package scim

import "testing"

// Every accepted filter contains exactly one valid name.
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
		if err := of.check(); err != nil {
			t.Errorf("%q: %+v, %v", text, of, err)
		}
	})
}
