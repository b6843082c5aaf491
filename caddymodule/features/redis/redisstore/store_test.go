package redisstore

import "testing"

func TestNames(t *testing.T) {
	t.Parallel()
	followed := map[string]bool{"revoked": true}
	single, cluster := keyNames{"fhir:", false, followed}, keyNames{"fhir:", true, followed}
	for _, tt := range []struct {
		name  string
		names keyNames
		key   string
		want  string
	}{
		{"single", single, "session:a.b", "fhir:session:a.b"},
		{"single, followed", single, "revoked:token:a", "fhir:revoked:token:a"},
		{"cluster", cluster, "session:a", "fhir:{a}session:a"},
		{"cluster, of a family", cluster, "refresh-token:a.17", "fhir:{a}refresh-token:a.17"},
		{"cluster, followed", cluster, "revoked:token:a", "fhir:{followed}revoked:token:a"},
		{"cluster, braces", cluster, "kind:{a}b", "fhir:{ab}kind:{a}b"},
		{"cluster, no colon", cluster, "kind", "fhir:{kind}kind"},
		{"cluster, nothing", cluster, "", "fhir:{}"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := tt.names.entryKey(tt.key)
			if got != tt.want {
				t.Errorf("it is called %s, want %s", got, tt.want)
			}
			if key, ok := tt.names.parseKey(got); !ok || key != tt.key {
				t.Errorf("the key of %s is %q, %v", got, key, ok)
			}
		})
	}
}

// Keys of other programs and internal keys are not listed.
func TestOtherKeysAreNotListed(t *testing.T) {
	t.Parallel()
	for _, n := range []keyNames{{prefix: "fhir:"}, {prefix: "fhir:", cluster: true}} {
		for _, name := range []string{n.internalKey(streamName, announcedTag), n.internalKey(newStepID(), "a"), "other:session:a"} {
			if key, ok := n.parseKey(name); ok {
				t.Errorf("%s is the key %q", name, key)
			}
		}
	}
}
