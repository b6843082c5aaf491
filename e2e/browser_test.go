package e2e

import (
	"context"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"golang.org/x/oauth2"
)

// ownDomain is a domain all of whose names are this machine, for browsers and for
// clients of ours. It is for what must not be on localhost: an app that is answered
// without a click, and pages of different names that are one site.
const ownDomain = ".hospital.internal"

// newBrowser starts a headless Chromium with a new profile.
func newBrowser(t *testing.T) context.Context {
	t.Helper()
	if _, err := exec.LookPath("chromium"); err != nil {
		t.Skip("chromium is not installed")
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath("chromium"), chromedp.UserDataDir(t.TempDir()), chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.IgnoreCertErrors,           // Caddy's CA is in no store here
		chromedp.Flag("disable-quic", true), // HTTP/3 takes no such certificate all the same
		chromedp.Flag("disable-component-update", true),
		chromedp.Flag("host-resolver-rules", "MAP *"+ownDomain+" 127.0.0.1"),
		chromedp.Flag("hide-scrollbars", false), // they take room
		chromedp.WSURLReadTimeout(time.Minute),
	)
	ctx, end := chromedp.NewExecAllocator(t.Context(), options...)
	t.Cleanup(end)
	ctx, closeTab := chromedp.NewContext(ctx)
	t.Cleanup(closeTab)
	perform(t, ctx) // starts it; its context must have no time limit
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// step is something to do in the browser.
type step = chromedp.Action[chromedp.Void]

func perform(t *testing.T, ctx context.Context, steps ...step) {
	t.Helper()
	if err := chromedp.Do(ctx, steps...); err != nil {
		t.Fatal(err)
	}
}

// read asks the browser for something.
func read[T any](t *testing.T, ctx context.Context, what chromedp.Action[T]) T {
	t.Helper()
	value, err := chromedp.Run(ctx, what)
	if err != nil {
		t.Fatal(err)
	}
	return value
}

// appServer is the app at the example's redirect URI; the requests that come
// back to it are in the channel.
func appServer(t *testing.T) <-chan *http.Request {
	t.Helper()
	landed := make(chan *http.Request, 1)
	mux := http.NewServeMux()
	mux.HandleFunc("/callback", func(w http.ResponseWriter, r *http.Request) {
		_ = r.ParseForm()
		w.Header().Set("Content-Type", "text/html")
		_, _ = w.Write([]byte("<!doctype html><title>The app</title><h1>Back in the app</h1>"))
		landed <- r
	})
	server := &http.Server{Addr: "localhost:3000", Handler: mux}
	failed := make(chan error, 1)
	go func() { failed <- server.ListenAndServe() }()
	t.Cleanup(func() {
		_ = server.Close()
		if err := <-failed; !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("port 3000 must be free, because Caddyfile.example's redirect URI names it: %v", err)
		}
	})
	return landed
}

// Somebody signs in with the keyboard alone, mistyping once.
func TestBrowserSignIn(t *testing.T) {
	ctx, landed := newBrowser(t), appServer(t)
	app, verifier := example.demoApp(t, "openid", "profile"), oauth2.GenerateVerifier()
	app.RedirectURL = callback
	perform(t, ctx,
		chromedp.Navigate(app.AuthCodeURL("from the browser", oauth2.S256ChallengeOption(verifier))),
		chromedp.WaitVisible(chromedp.CSS("form")),
		chromedp.KeyEvent(userName+kb.Tab+"wrong"+kb.Enter), // the field for the name has the focus
		chromedp.WaitVisible(chromedp.CSS("[role=alert]")),
	)
	if typed := read(t, ctx, chromedp.Value(chromedp.ID("username"))); typed != userName {
		t.Errorf("after a wrong password the name is %q, want %q again", typed, userName)
	}
	perform(t, ctx,
		chromedp.KeyEvent(userPassword+kb.Enter), // and now the one for the password
		chromedp.WaitVisible("//h1[text()='Back in the app']"),
	)
	query := (<-landed).URL.Query()
	if query.Get("state") != "from the browser" {
		t.Errorf("state %q", query.Get("state"))
	}
	if _, err := app.Exchange(example.context(t), query.Get("code"), oauth2.VerifierOption(verifier)); err != nil {
		t.Errorf("the browser's code: %v", err)
	}

	t.Run("no script can read the cookies", func(t *testing.T) {
		perform(t, ctx, chromedp.Navigate(example.issuer+"/.well-known/openid-configuration"))
		if cookies := read(t, ctx, chromedp.Evaluate[string]("document.cookie")); cookies != "" {
			t.Errorf("document.cookie is %q", cookies)
		}
	})
	t.Run("signed in, a click is enough", func(t *testing.T) {
		ctx := soon(t, ctx)
		perform(t, ctx, chromedp.Navigate(app.AuthCodeURL("again")), chromedp.WaitVisible("//h1[text()='Continue to Demo App?']"))
		select {
		case early := <-landed:
			t.Errorf("landed without a click at %s", early.URL)
		default:
		}
		perform(t, ctx, chromedp.Click("//button[text()='Continue']"), chromedp.WaitVisible("//h1[text()='Back in the app']"))
		query := (<-landed).URL.Query()
		if query.Get("state") != "again" {
			t.Errorf("landed with %s", query.Encode())
		}
		if _, err := app.Exchange(example.context(t), query.Get("code")); err != nil {
			t.Errorf("the code of the click: %v", err)
		}
	})
}

// look opens a page on a screen of some width and colour scheme.
func look(width int64, scheme, address string) step {
	return chromedp.Steps(screen(width, scheme), chromedp.Navigate(address))
}

// screen has some width and colour scheme.
func screen(width int64, scheme string) step {
	screen := []chromedp.EmulateViewportOption{chromedp.EmulateLandscape}
	if width < 600 {
		screen = []chromedp.EmulateViewportOption{chromedp.EmulatePortrait, chromedp.EmulateMobile, chromedp.EmulateTouch}
	}
	media := emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}}
	return chromedp.Steps(
		chromedp.EmulateViewport(width, 800, screen...),
		chromedp.Func(func(ctx context.Context, tab *chromedp.Target) error {
			if _, err := cdp.Call(ctx, tab, emulation.SetEmulatedMedia, media); err != nil {
				return err
			}
			// As if the window were in front: so the focus can be seen.
			_, err := cdp.Call(ctx, tab, emulation.SetFocusEmulationEnabled, emulation.SetFocusEmulationEnabledParams{Enabled: true})
			return err
		}),
	)
}

// screenshot writes what is on the screen to out/name.png.
func screenshot(t *testing.T, ctx context.Context, name string) {
	t.Helper()
	png := read(t, ctx, chromedp.CaptureScreenshot())
	if err := os.WriteFile(filepath.Join(outFolder, name+".png"), png, 0o644); err != nil {
		t.Fatal(err)
	}
}
