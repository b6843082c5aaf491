package audit

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

func TestRefusals(t *testing.T) {
	t.Parallel()
	var r Rejections
	refuse := func(issuer, client, why string) {
		r.Record(issuer, Event{Kind: Token, ClientID: client, Err: errors.New(why)})
	}
	for i := range maxRefusals + 5 {
		refuse("i", "app", fmt.Sprint(i))
	}
	refuse("i", "other", "x")
	refuse("elsewhere", "app", "y")
	r.Record("i", Event{Kind: Token, ClientID: "app"})                                   // success
	r.Record("i", Event{Kind: Token, ClientID: "app", Err: errors.New("z"), LeftOut: 3}) // summary
	found := r.ForClient("i", "app")
	if len(found) != maxRefusals || found[0].Reason != "5" || found[maxRefusals-1].Reason != fmt.Sprint(maxRefusals+4) {
		t.Errorf("%d: %+v", len(found), found)
	}
	refuse("i", "long", "\x1b[31m\r\n\u202e"+strings.Repeat("x", 1<<20))
	if reason := r.ForClient("i", "long")[0].Reason; len(reason) > 2*maxLogged || strings.ContainsAny(reason, "\x1b\r\n\u202e") {
		t.Errorf("%d bytes: %.50q", len(reason), reason)
	}
	if len(r.ForClient("i", "none")) != 0 || len(r.ForClient("i", "other")) != 1 {
		t.Error("another client's, or none")
	}
	for i := range 2 * maxRefused {
		refuse("i", fmt.Sprint(i), "flood")
	}
	if held, _ := r.kept.Held(); held > maxRefused {
		t.Errorf("%d clients", held)
	}
}
