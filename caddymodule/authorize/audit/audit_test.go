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
		r.Record(issuer, Event{Kind: KindToken, ClientID: client, Err: errors.New(why)})
	}
	for i := range maxRejections + 5 {
		refuse("i", "app", fmt.Sprint(i))
	}
	refuse("i", "other", "x")
	refuse("elsewhere", "app", "y")
	r.Record("i", Event{Kind: KindToken, ClientID: "app"})                                           // successes are not stored
	r.Record("i", Event{Kind: KindToken, ClientID: "app", Err: errors.New("z"), SuppressedCount: 3}) // summaries are not stored
	r.Record("i", Event{Kind: KindRevocation, ClientID: "app", Err: errors.New("o"), Reason: "all grants revoked by operator"})
	found := r.ForClient("i", "app")
	if len(found) != maxRejections || found[0].Reason != "5" || found[maxRejections-1].Reason != fmt.Sprint(maxRejections+4) {
		t.Errorf("%d: %+v", len(found), found)
	}
	refuse("i", "long", "\x1b[31m\r\n\u202e"+strings.Repeat("x", 1<<20))
	if reason := r.ForClient("i", "long")[0].Reason; len(reason) > 2*maxLoggedBytes || strings.ContainsAny(reason, "\x1b\r\n\u202e") {
		t.Errorf("%d bytes: %.50q", len(reason), reason)
	}
	if len(r.ForClient("i", "none")) != 0 || len(r.ForClient("i", "other")) != 1 {
		t.Error("another client's, or none")
	}
	for i := range 2 * maxRejectedClients {
		refuse("i", fmt.Sprint(i), "flood")
	}
	if size, _ := r.byClient.Size(); size > maxRejectedClients {
		t.Errorf("%d clients", size)
	}
}
