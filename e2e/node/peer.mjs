// npm oidc-provider as a peer for ../bench: everything in memory, and people and
// consent taken for granted, so that what is measured is the protocol alone. It
// speaks plain HTTP on loopback.
//
//	PORT           where it listens
//	ALGORITHM      of its ID tokens and JWT access tokens: RS256 or ES256
//	REDIRECT_URI   of its one client, bench with bench-secret
import { generateKeyPairSync, randomBytes } from 'node:crypto';

import { Provider } from 'oidc-provider';

const { PORT, ALGORITHM, REDIRECT_URI } = process.env;
const issuer = `http://127.0.0.1:${PORT}`;
const [type, options] = ALGORITHM === 'RS256' ? ['rsa', { modulusLength: 2048 }] : ['ec', { namedCurve: 'P-256' }];
const key = generateKeyPairSync(type, options).privateKey.export({ format: 'jwk' });

const provider = new Provider(issuer, {
	clients: [
		{
			client_id: 'bench',
			client_secret: 'bench-secret',
			redirect_uris: [REDIRECT_URI],
			grant_types: ['authorization_code', 'refresh_token', 'client_credentials'],
			id_token_signed_response_alg: ALGORITHM,
		},
	],
	// It takes offline_access away where nobody was asked for consent.
	scopes: ['openid', 'profile', 'refresh', 'api'],
	jwks: { keys: [{ ...key, kid: 'key', alg: ALGORITHM, use: 'sig' }] },
	cookies: { keys: [randomBytes(32).toString('hex')] },
	findAccount: (ctx, id) => ({ accountId: id, claims: () => ({ sub: id, name: 'Alice Adams' }) }),
	issueRefreshToken: (ctx, client, code) => code.scopes.has('refresh'),
	async loadExistingGrant(ctx) {
		const { client, session, provider } = ctx.oidc;
		const grant = new provider.Grant({ clientId: client.clientId, accountId: session.accountId });
		grant.addOIDCScope('openid profile refresh');
		grant.addResourceScope(`${issuer}/fhir`, 'api openid profile refresh');
		await grant.save();
		return grant;
	},
	interactions: { url: (ctx, interaction) => `/interaction/${interaction.uid}` },
	features: {
		devInteractions: { enabled: false },
		clientCredentials: { enabled: true },
		introspection: { enabled: true },
		userinfo: { enabled: true },
		resourceIndicators: {
			enabled: ALGORITHM === 'ES256', // its access tokens are JWTs then
			defaultResource: () => `${issuer}/fhir`,
			useGrantedResource: () => true,
			getResourceServerInfo: () => ({ scope: 'api openid profile refresh', accessTokenFormat: 'jwt', jwt: { sign: { alg: ALGORITHM } } }),
		},
	},
});

provider.use(async (ctx, next) => {
	if (!ctx.path.startsWith('/interaction/')) return next();
	ctx.respond = false;
	const result = { login: { accountId: 'alice' } };
	return provider.interactionFinished(ctx.req, ctx.res, result, { mergeWithLastSubmission: false });
});
for (const event of ['server_error', 'authorization.error', 'grant.error', 'introspection.error', 'userinfo.error']) {
	provider.on(event, (ctx, error) => console.error(event, error.message, error.error_detail ?? error.error_description ?? ''));
}
provider.listen(Number(PORT), '127.0.0.1');
