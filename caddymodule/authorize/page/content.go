package page

import (
	"net/http"
	"net/url"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/endpoint"
)

// SignIn is what templates/signin.html shows.
type SignIn struct {
	Client   string        // the client's title
	Links    AppLinks      // that the client registered
	Request  string        // sealed
	Username string        // as typed last, or as the client suggests
	Problem  SignInProblem // with the last attempt
	Local    bool          // people can sign in by password
	Passkey  *Passkey      // people can sign in with one; nil if they cannot
	ByEmail  bool          // an e-mail address may lead to a provider
	Ways     []SignInWay   // the providers
}

// SignInProblem is why the sign-in page is shown again. Each field may be zero.
type SignInProblem struct {
	Wrong bool          // the last attempt was
	Wait  time.Duration // until the next attempt
	Down  string        // the provider that cannot be reached
	Busy  time.Duration // until the next attempt, because there are too many others

	Passkey bool // it was not accepted
}

// Passkey is a challenge that the script "passkey" answers. Without scripts, pages do not
// show it.
type Passkey struct {
	Options string // for navigator.credentials, in JSON
	Sealed  string // comes back with the answer
}

// Any reports whether there is a problem.
func (p SignInProblem) Any() bool { return p != SignInProblem{} }

// SignInWay is a link to an identity provider.
type SignInWay struct {
	Name    string // the provider's
	Address string // where the link leads
}

// SecondFactor is what templates/secondfactor.html shows.
type SecondFactor struct {
	Client string        // the client's title
	Factor string        // the pending sign-in
	Wrong  bool          // the last code was
	Wait   time.Duration // until the next attempt

	Code          bool     // it can be a code
	App, Recovery bool     // what codes there are
	Passkey       *Passkey // it can be a passkey; nil if it cannot
	WrongPasskey  bool     // it was not accepted
}

// SelectAccount is what templates/selectaccount.html shows.
type SelectAccount struct {
	Client  string // the client's title
	Request string // sealed
	Person  Person // who is signed in
}

// Person is whom pages speak of.
type Person struct {
	Name   string // the best that is known
	Detail string // tells namesakes apart; may be ""
}

// Refused is what templates/refused.html shows.
type Refused struct {
	Client   string // the client's title; "" if it is for a page
	Refused  string // the sign-in, sealed
	Person   Person // who may not sign in here
	Provider string // who signed them in
	SignsOut bool   // it can sign them out
}

// SignOut is what templates/signout.html shows.
type SignOut struct {
	Client  string // the client's title; "" if the request names none
	Request string // sealed
}

// FormPost is what templates/formpost.html shows: a form that the script "submit" sends, or
// without scripts a button.
type FormPost struct {
	Client   string  // the client's title
	Address  string  // where the form leads
	Fields   []Field // what it sends
	Question *Text   // for the person, whom no script takes on then; may be nil
}

// Field is a form's hidden field.
type Field struct {
	Name  string // of the parameter
	Value string // of the parameter
}

// Message is what templates/message.html shows.
type Message struct {
	Title  *Text  // the heading
	Text   *Text  // what happened, and what the person can do
	Detail string // for the client's developer, in English
	Next   *Link  // where to go from here; may be nil
}

// Link leads to another page.
type Link struct {
	Address string // where
	Text    *Text  // what it is called
}

// ShowMessage shows a message.
func (s *Site) ShowMessage(w http.ResponseWriter, r *http.Request, status int, message Message) {
	s.Show(w, r, View{Template: "message", Status: status, Data: message})
}

// AppLinks are what an app that registered itself shows of itself (RFC 7591 §2). Nobody has
// checked them. A browser loads nothing from the app: its logo comes from here.
type AppLinks struct {
	Client string // the client's title
	Logo   string // the address of its logo here, or ""
	Policy string // the address of its privacy policy, or ""
	Terms  string // that of its terms of use, or ""
}

// LogoOf is where the logo of a client is.
func LogoOf(clientID string) string {
	return endpoint.ClientLogo + "?client_id=" + url.QueryEscape(clientID)
}

// Images are what a page with these links loads, for its [Policy].
func (a AppLinks) Images() string {
	if a.Logo == "" {
		return ""
	}
	return "'self'"
}
