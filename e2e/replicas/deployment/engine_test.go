package deployment

import (
	"testing"
	"time"
)

// Each engine recovers after each of its servers has been killed and restarted, and after network cuts.
func TestEngines(t *testing.T) {
	for _, name := range Engines {
		t.Run(name, func(t *testing.T) {
			if missing := Missing(name); len(missing) > 0 {
				t.Skip("not installed:", missing)
			}
			network, err := NewNetwork()
			if err != nil {
				t.Log("nothing is cut off:", err)
				network = Loopback()
			}
			defer network.Close()
			engine, err := StartEngine(name, t.TempDir(), network)
			if err != nil {
				t.Fatal(err)
			}
			defer engine.Stop()
			for _, server := range engine.Servers() {
				server.Kill()
				if err := server.Start(); err != nil {
					t.Error(err)
				}
				server.Pause()
				server.Resume()
				if err := server.Ready(10 * time.Second); err != nil {
					t.Error(err)
				}
			}
			if servers := engine.Servers(); network.Cuts() && len(servers) > 1 {
				if err := network.Cut(servers[0], servers[1]); err != nil {
					t.Error(err)
				}
				if err := network.Heal(); err != nil {
					t.Error(err)
				}
			}
		})
	}
}
