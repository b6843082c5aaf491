package paging

import (
	"reflect"
	"strings"
	"testing"
)

// pageCases are pages whose states are encoded.
var pageCases = map[string]Page{
	"empty":       {},
	"first page":  {Method: "GET", Path: "Observation", Query: "_count=10", At: Position{Places: []Place{{}}}},
	"posted form": {Method: "POST", Path: "Observation/_search", Body: "code=a&_count=10", At: Position{Shown: 7, Total: 900, Places: []Place{{Path: "Observation", Query: "x=1", Taken: 3}}}},
	"ids of all kinds": {Path: "", Query: "_type=Observation,Condition", At: Position{Places: []Place{
		{Done: true, Cut: true, Left: []string{"Observation/0b3c9e2e-7f43-4a6b-9d8e-0123456789ab", "Condition/12", "Observation/012", "Observation/0"}},
		{Query: "_getpages=1", Left: []string{"Condition/" + strings.Repeat("x", 64), "Condition/0B3C9E2E-7F43-4A6B-9D8E-0123456789AB", "Condition/9223372036854775807", "Condition/-1", "Condition/+1"}},
		{Left: []string{"Observation/0b3c9e2e-7f43-4a6b-9d8e0-123456789ab", "Observation/" + strings.Repeat("y", 200)}},
	}}},
}

func TestEncodePage(t *testing.T) {
	t.Parallel()
	for name, p := range pageCases {
		state := string(p.encode())
		got, err := decodePage(state)
		if err != nil || !reflect.DeepEqual(got, p) {
			t.Errorf("%s: %v\ngot  %+v\nwant %+v", name, err, got, p)
		}
		for n := range len(state) { // a part of a state is an error, or at least no panic
			if _, err := decodePage(state[:n]); err == nil {
				t.Errorf("%s: the first %d of %d bytes were accepted", name, n, len(state))
			}
		}
	}
}

func TestEncodePageIsShort(t *testing.T) {
	t.Parallel()
	var p Page
	for i := range 50 {
		p.At.Places = append(p.At.Places, Place{Left: []string{"Observation/0b3c9e2e-7f43-4a6b-9d8e-0123456789a" + string("0123456789abcdef"[i%16])}})
	}
	if got := len(p.encode()); got > 50*25 {
		t.Errorf("50 UUIDs take %d bytes", got)
	}
}

func FuzzDecodePage(f *testing.F) {
	for _, p := range pageCases {
		f.Add(string(p.encode()))
	}
	f.Fuzz(func(t *testing.T, state string) {
		p, err := decodePage(state)
		if err != nil {
			return
		}
		if again, err := decodePage(string(p.encode())); err != nil || !reflect.DeepEqual(again, p) {
			t.Errorf("%v: %+v became %+v", err, p, again)
		}
	})
}
