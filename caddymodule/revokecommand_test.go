package caddymodule

import (
	"net/http"
	"strings"
	"testing"
)

func TestRevokeCommand(t *testing.T) {
	g := exampleGateway(t, nil)
	g.code()
	ask := func(target string) (*http.Response, error) {
		w, err := admin(t, g.Context, http.MethodDelete, target)
		return w.Result(), err
	}
	var out strings.Builder
	if code, err := revokeBy(&out, "alice", "", ask); code != 0 || err != nil || !strings.HasPrefix(out.String(), "Ended: sessions ") {
		t.Errorf("exit code %d, error %v: %s", code, err, &out)
	}
	for _, tt := range []struct{ user, client string }{{"", ""}, {"alcie", ""}, {"", "nobody"}} {
		if code, err := revokeBy(&out, tt.user, tt.client, ask); code == 0 || err == nil {
			t.Errorf("%+v: exit code %d, error %v", tt, code, err)
		}
	}
}
