// Package sandbox is for trying out SMART App Launch 2.2 with nothing but this gateway: a page
// that launches apps as an EHR does, and an app to launch. Both are off unless an operator
// switches them on.
//
//	endpoint.go    LaunchPage, the endpoint
//	launchpage.go  choose a patient and an app
//	launching.go   what its form does
//	app.go         App, the client; and its page, whose script is page/scripts/sandboxapp.js;
//	               LocalApp, which stands for apps on the person's own computer
//
// The launch page is for whoever is signed in. It offers the patients that they may choose
// ([launch.Patients]), asked for with their own rights, and launches apps for nobody but them:
// so an app gets no patient by it that a standalone launch would not give.
//
// The app is a public client like any other. Its script knows the standard alone, and the
// guard treats its tokens as those of other apps.
package sandbox
