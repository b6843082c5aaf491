package e2e

import (
	"crypto/hmac"
	"crypto/sha1" //nolint:gosec // as authenticator apps have it
	"encoding/base32"
	"encoding/binary"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"golang.org/x/oauth2"
)

const (
	aliceLine  = "\t\t\tfhir_user Practitioner/alice\n"
	totpSecret = "GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ"
)

// totpNow returns the code that an authenticator app currently shows (RFC 6238).
func totpNow() string {
	key, _ := base32.StdEncoding.DecodeString(totpSecret)
	mac := hmac.New(sha1.New, key)
	mac.Write(binary.BigEndian.AppendUint64(nil, uint64(time.Now().Unix()/30)))
	sum := mac.Sum(nil)
	return fmt.Sprintf("%06d", binary.BigEndian.Uint32(sum[sum[19]&0xf:])&0x7fffffff%1_000_000)
}

// A user signs in with a password and a one-time code, using only the keyboard. The screenshots in out/ are for visual
// inspection.
func TestSecondFactorInBrowser(t *testing.T) {
	ctx, landed := newBrowser(t), appServer(t)
	g := startTestGateway(t, "gateway-totp", fhirServer.address, aliceLine, aliceLine+"\t\t\ttotp_secret "+totpSecret+"\n")
	app, verifier := g.demoApp(t, "openid"), oauth2.GenerateVerifier()
	app.RedirectURL = callback
	signIn := app.AuthCodeURL("by two factors", oauth2.S256ChallengeOption(verifier))
	perform(t, ctx,
		chromedp.Navigate(signIn),
		chromedp.WaitVisible(chromedp.CSS("form")),
		chromedp.KeyEvent(userName+kb.Tab+userPassword+kb.Enter),
		chromedp.WaitVisible(chromedp.ID("code")),
	)
	page := readValue(t, ctx, chromedp.Evaluate[string]("location.href"))
	checkPageLooks(t, ctx, "secondfactor", page, "//h1[text()='Enter your code']", func(t *testing.T, page pageMeasurements) {
		if page.Forms != 1 || len(page.Unlabelled) != 0 || page.Autocomplete["code"] != "one-time-code" {
			t.Errorf("%d forms, without a label: %q, autocomplete %q", page.Forms, page.Unlabelled, page.Autocomplete)
		}
	})
	perform(t, ctx,
		chromedp.KeyEvent("000000"+kb.Enter),
		chromedp.WaitVisible(chromedp.CSS("[role=alert]")),
	)
	screenshot(t, ctx, "secondfactor-wrong")
	perform(t, ctx,
		chromedp.KeyEvent(totpNow()+kb.Enter),
		chromedp.WaitVisible("//h1[text()='Back in the app']"),
	)
	if _, err := app.Exchange(g.context(t), (<-landed).URL.Query().Get("code"), oauth2.VerifierOption(verifier)); err != nil {
		t.Errorf("the browser's code: %v", err)
	}
}

// After too many wrong passwords, the page shows how long the user has to wait.
func TestLockoutPage(t *testing.T) {
	ctx := newBrowser(t)
	g := startTestGateway(t, "gateway-lockout", fhirServer.address, "\t\tfhir_base", "\t\tlockout 1\n\t\tfhir_base")
	signIn := g.demoApp(t, "openid").AuthCodeURL("state")
	for _, width := range []int64{320, 1280} {
		for _, scheme := range []string{"light", "dark"} {
			name := fmt.Sprintf("signin-wait-%d-%s", width, scheme)
			t.Run(name, func(t *testing.T) {
				alert := ""
				for tries := 0; !strings.HasPrefix(alert, "Too many attempts."); tries++ { // the lockout doubles with each failure, so it soon exceeds the duration of an attempt
					if tries == 5 {
						t.Fatalf("the page shows %q", alert)
					}
					perform(t, ctx, look(width, scheme, signIn), mistype())
					alert = readValue(t, ctx, chromedp.Evaluate[string]("document.querySelector('[role=alert]').textContent"))
				}
				screenshot(t, ctx, name)
				page := readValue(t, ctx, chromedp.Evaluate[pageMeasurements](measure))
				checkLayout(t, page, int(width))
				checkSignInPage(t, page)
			})
		}
	}
}

// The gateway does not trust forwarded client addresses. Failures count for the address of the connection.
func TestLockoutByAddress(t *testing.T) {
	g := startTestGateway(t, "gateway-address", fhirServer.address, "\t\tfhir_base", "\t\tlockout 1\n\t\tfhir_base")
	address := g.demoApp(t, "openid").AuthCodeURL("state")
	for i := range 20 {
		p := g.newPerson(t)
		form := p.openSignIn(t, address)
		form.hidden.Set("username", fmt.Sprintf("user%d", i))
		form.hidden.Set("password", "wrong")
		r := newRequest(t, http.MethodPost, form.action, form.hidden.Encode())
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		for _, name := range []string{"X-Forwarded-For", "X-Real-IP", "Forwarded", "True-Client-IP"} {
			r.Header.Set(name, fmt.Sprintf("198.51.100.%d", i))
		}
		if send(t, p.client, r).status == http.StatusTooManyRequests {
			return
		}
	}
	t.Error("20 wrong passwords without a wait")
}
