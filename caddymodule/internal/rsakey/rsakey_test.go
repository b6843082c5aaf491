package rsakey

import "testing"

func TestNew(t *testing.T) {
	t.Parallel()
	first, err := New()
	if err != nil {
		t.Fatal(err)
	}
	second, err := New()
	if err != nil || first.N.BitLen() != 2048 || first.Equal(second) {
		t.Errorf("%d bits, the same again: %v; %v", first.N.BitLen(), first.Equal(second), err)
	}
}
