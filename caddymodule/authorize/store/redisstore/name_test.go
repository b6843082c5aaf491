package redisstore

import "testing"

func TestNames(t *testing.T) {
	t.Parallel()
	single, cluster := names{prefix: "fhir:"}, names{prefix: "fhir:", cluster: true}
	for _, tt := range []struct {
		name     string
		names    names
		key      string
		followed bool
		want     string
	}{
		{"single", single, "session:a.b", false, "fhir:session:a.b"},
		{"single, followed", single, "revoked:token:a", true, "fhir:revoked:token:a"},
		{"cluster", cluster, "session:a", false, "fhir:{a}session:a"},
		{"cluster, of a family", cluster, "refresh-token:a.17", false, "fhir:{a}refresh-token:a.17"},
		{"cluster, followed", cluster, "revoked:token:a", true, "fhir:{followed}revoked:token:a"},
		{"cluster, braces", cluster, "kind:{a}b", false, "fhir:{ab}kind:{a}b"},
		{"cluster, no colon", cluster, "kind", false, "fhir:{kind}kind"},
		{"cluster, nothing", cluster, "", false, "fhir:{}"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := tt.names.entry(tt.key, tt.names.tag(tt.key, tt.followed))
			if got != tt.want {
				t.Errorf("it is called %s, want %s", got, tt.want)
			}
			if key, ok := tt.names.key(got); !ok || key != tt.key {
				t.Errorf("the key of %s is %q, %v", got, key, ok)
			}
		})
	}
}

// TestOwnNames keeps what is no entry out of lists.
func TestOwnNames(t *testing.T) {
	t.Parallel()
	for _, n := range []names{{prefix: "fhir:"}, {prefix: "fhir:", cluster: true}} {
		for _, name := range []string{n.own(streamName, followedTag), n.own(newStepID(), "a"), "other:session:a"} {
			if key, ok := n.key(name); ok {
				t.Errorf("%s is the key %q", name, key)
			}
		}
	}
}
