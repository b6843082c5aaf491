package snapshotmap

import (
	"maps"
	"slices"
	"strconv"
	"testing"
)

// A Map behaves like a Go map, and changes to it do not affect its clones.
func TestMap(t *testing.T) {
	t.Parallel()
	m, want := new(Map[int]), map[string]int{}
	var snapshots []*Map[int]
	var expected []map[string]int
	for i := range 3000 {
		if i%100 == 0 {
			snapshots, expected = append(snapshots, m), append(expected, maps.Clone(want))
			m = m.Clone()
		}
		key := strconv.Itoa(i * i % 1009)
		if i%3 == 0 {
			m.Delete(key)
			delete(want, key)
			continue
		}
		m.Set(key, i)
		want[key] = i
	}
	for i, snapshot := range append(snapshots, m) {
		of := append(expected, want)[i]
		if got := maps.Collect(snapshot.All()); !maps.Equal(got, of) || snapshot.Len() != len(of) {
			t.Errorf("snapshot %d: %d of %d keys", i, snapshot.Len(), len(of))
		}
		for key := range of {
			if v, found := snapshot.Lookup(key); !found || v != of[key] || snapshot.Get(key) != v {
				t.Errorf("snapshot %d: %s: %d, %v, want %d", i, key, v, found, of[key])
			}
		}
	}
	if v, found := m.Lookup("none"); found || v != 0 {
		t.Errorf("none: %d, %v", v, found)
	}
}

func TestCandidates(t *testing.T) {
	t.Parallel()
	before := new(Map[int])
	for i := range 10_000 {
		before.Set(strconv.Itoa(i), i)
	}
	after := before.Clone()
	after.Set("5", 6)
	after.Set("new", 1)
	after.Delete("7")
	for _, pair := range [][2]*Map[int]{{before, after}, {after, before}} {
		got := slices.Collect(pair[0].ChangedKeys(pair[1]))
		for _, key := range []string{"5", "new", "7"} {
			if !slices.Contains(got, key) {
				t.Errorf("%s is none of %d", key, len(got))
			}
		}
		if len(got) > 500 {
			t.Errorf("%d candidates for three changes", len(got))
		}
	}
	if got := slices.Collect(before.ChangedKeys(before)); len(got) != 0 {
		t.Errorf("compared with itself: %d", len(got))
	}
}

func TestSubstitute(t *testing.T) {
	t.Parallel()
	m := new(Map[string])
	if got := m.PickByKey("x"); got != "" {
		t.Errorf("of an empty map: %q", got)
	}
	for _, key := range []string{"a", "b", "c", "d"} {
		m.Set(key, "value of "+key)
	}
	got := map[string]int{}
	for i := range 1000 {
		name := strconv.Itoa(i)
		if m.PickByKey(name) != m.Clone().PickByKey(name) {
			t.Errorf("%s has another one each time", name)
		}
		got[m.PickByKey(name)]++
	}
	if len(got) != 4 {
		t.Errorf("values: %v", got)
	}
}
