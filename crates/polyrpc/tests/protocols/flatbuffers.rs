//! FlatBuffers: code generated from a `.fbs` reads messages of Google's compiler, and serves over every protocol.

use bytes::Bytes;
use polyrpc::client::{CallOptions, ConnectionMode, Request};
use polyrpc::codec::Body;
use polyrpc::flatbuffers::{Fields, Message, Table};
use polyrpc::server::Listen;
use polyrpc::service::ServiceBuilder;
use polyrpc::{Client, Code, Context, Format, Protocol, Result, Server, Status, Streaming};
use polyrpc_wire::fb_rpc::Magic;

use crate::common::{serve, url, url_of};
use crate::rich::test::rich::common::{Stamp, StampArgs};
use crate::rich::test::rich::{
    AnyArgs, AnyRef, Color, Far, Given, GivenArgs, Monster, MonsterArgs, MonsterRef, Mood, Nothing,
    NothingArgs, Pack, Store, StoreBlockingClient, StoreClient, StoreServer, Vec3, WeaponArgs,
};

// ---------------------------------------------------------------------- messages

#[test]
fn message_written_by_flatc_is_read() {
    let message =
        Message::<Monster>::read(&include_bytes!("../../vectors/flatbuffers/rich.bin")[..]).unwrap();
    assert!(message.has_identifier());
    let monster = message.root();
    assert_eq!(monster.pos(), Some(Vec3 { x: 1.5, y: -2.0, z: 3.25, mood: Mood::Angry }));
    assert_eq!((monster.mana(), monster.hp()), (150, 12345));
    assert_eq!(monster.name().to_str().unwrap(), "Orc 世界");
    assert_eq!(monster.inventory().unwrap().as_bytes(), [1, 2, 3, 255]);
    assert_eq!((monster.color(), monster.mood()), (Color::Red | Color::Blue, Mood::Calm));
    let weapons = monster.weapons().unwrap();
    assert_eq!(
        weapons.iter().map(|weapon| (weapon.name(), weapon.damage())).collect::<Vec<_>>(),
        [("Axe".into(), 5), ("Sword".into(), 7)]
    );
    assert_eq!(weapons.find("Sword").map(|weapon| weapon.damage()), Some(7));
    assert!(weapons.find("Bow").is_none());
    assert!(matches!(monster.equipped(), Some(AnyRef::Weapon(weapon)) if weapon.damage() == -3));
    assert_eq!(monster.path().unwrap().get(1), Some(Vec3 { x: 1.0, y: 2.0, z: 3.0, mood: Mood::Calm }));
    let pack = monster.packs().unwrap().find(&1).unwrap();
    assert_eq!((pack.counts, pack.flag, pack.corners[0].mood), ([1, -2, 3], true, Mood::Angry));
    let several: Vec<_> = monster.any_of_several().collect();
    assert!(
        matches!(several[..], [Some(AnyRef::Weapon(_)), Some(AnyRef::Other(stamp))] if stamp.nanos() == 8)
    );
    assert_eq!(monster.r#type(), Some("ogre".into()));
    assert_eq!(
        monster.stamp().and_then(|stamp| stamp.weapon()).map(|weapon| weapon.name()),
        Some("clock".into())
    );
    assert_eq!(
        (monster.maybe_int(), monster.maybe_bool(), monster.maybe_mood()),
        (Some(0), Some(false), None)
    );
    assert_eq!((monster.ratio(), monster.endless()), (0.5, f32::INFINITY));
    assert_eq!((monster.flags(), monster.big(), monster.far()), (Color::Green, 42, Far::Zero));
    assert!(!monster.flags().contains(Color::Red));
    assert_eq!(monster.names().unwrap().iter().collect::<Vec<_>>(), ["a", "", "ccc"]);
    assert_eq!(monster.moods().unwrap().iter().collect::<Vec<_>>(), [Mood::Calm, Mood::Angry]);
    assert_eq!(monster.yes().unwrap().iter().collect::<Vec<_>>(), [true, false]);
    // FNV-1a of "some name".
    assert_eq!(monster.hashed(), fnv1a(b"some name"));
    assert_eq!(monster.next().map(|next| (next.name(), next.hp())), Some(("smaller".into(), -100)));
    assert_eq!(monster.longs().unwrap().iter().collect::<Vec<_>>(), [1, i64::MIN]);
    assert_eq!((monster.greeting(), monster.empty().len()), ("hello".into(), 0));
    assert!(monster.one_pack().is_none());
}

#[test]
fn message_built_from_values_equals_that_of_flatc() {
    let theirs = Message::<Monster>::read(&include_bytes!("../../vectors/flatbuffers/rich.bin")[..]).unwrap();
    let axe = WeaponArgs { name: "Axe".into(), damage: -3 };
    let corner = |x: f32, mood| Vec3 { x, y: x + 1.0, z: f64::from(x) + 2.0, mood };
    let monster = MonsterArgs {
        pos: Some(Vec3 { x: 1.5, y: -2.0, z: 3.25, mood: Mood::Angry }),
        hp: 12345,
        name: "Orc 世界".into(),
        inventory: Some(&[1, 2, 3, 255]),
        color: Color::Red | Color::Blue,
        mood: Mood::Calm,
        weapons: Some(&[
            WeaponArgs { name: "Axe".into(), damage: 5 },
            WeaponArgs { name: "Sword".into(), ..Default::default() },
        ]),
        equipped: Some(AnyArgs::Weapon(&axe)),
        path: Some(&[Vec3::default(), corner(1.0, Mood::Calm)]),
        packs: Some(&[Pack {
            id: 1,
            counts: [1, -2, 3],
            corners: [corner(1.0, Mood::Angry), corner(4.0, Mood::Neutral)],
            flag: true,
        }]),
        any_of_several: Some(&[
            AnyArgs::Weapon(&WeaponArgs { name: "Bow".into(), ..Default::default() }),
            AnyArgs::Other(&StampArgs { seconds: 7, nanos: 8, weapon: None }),
        ]),
        r#type: Some("ogre".into()),
        stamp: Some(&StampArgs {
            seconds: 1_700_000_000,
            nanos: 5,
            weapon: Some(&WeaponArgs { name: "clock".into(), ..Default::default() }),
        }),
        maybe_int: Some(0),
        maybe_bool: Some(false),
        ratio: 0.5,
        flags: Color::Green,
        big: 42,
        names: Some(&["a".into(), "".into(), "ccc".into()]),
        moods: Some(&[Mood::Calm, Mood::Angry]),
        yes: Some(&[true, false]),
        hashed: fnv1a(b"some name"),
        next: Some(&MonsterArgs { name: "smaller".into(), ..Default::default() }),
        longs: Some(&[1, i64::MIN]),
        far: Far::Zero,
        ..Default::default()
    };
    let ours = Message::<Monster>::read(monster.to_message().into_bytes()).unwrap();
    assert_eq!(format!("{ours:?}"), format!("{theirs:?}"));
}

#[test]
fn deprecated_fields_are_ignored() {
    // It has one more, required field: senders that do not know it omit it.
    Message::<Given>::read(GivenArgs::default().to_message().into_bytes()).unwrap();
}

#[test]
fn missing_required_field_is_rejected() {
    let broken = Message::<Monster>::read(NothingArgs {}.to_message().into_bytes()).unwrap_err();
    assert_eq!(broken.to_string(), "name: it is required and absent");
    // Unverified, it reads as empty.
    let unverified = Message::<Monster>::unverified(NothingArgs {}.to_message().into_bytes());
    assert_eq!(unverified.root().name(), "");
}

#[test]
fn nested_buffer_is_verified_with_its_parent() {
    let weapon = WeaponArgs { name: "inner".into(), damage: 1 }.to_message();
    let monster = MonsterArgs { name: "outer".into(), nested: Some(weapon.bytes()), ..Default::default() };
    let message = Message::<Monster>::read(monster.to_message().into_bytes()).unwrap();
    assert_eq!(message.root().nested_nested().map(|weapon| weapon.name()), Some("inner".into()));
    let broken = MonsterArgs { nested: Some(b"\xff\xff\xff\xff"), ..monster };
    let error = Message::<Monster>::read(broken.to_message().into_bytes()).unwrap_err();
    assert!(error.to_string().starts_with("nested: "), "{error}");
}

#[test]
fn unions_hold_tables_structs_and_strings_and_unknown_variants() {
    let vector = Vec3 { x: 1.0, ..Vec3::default() };
    let read = |any| {
        let message = Message::<Given>::read(
            GivenArgs { third: Some(any), ..Default::default() }.to_message().into_bytes(),
        );
        format!("{:?}", message.unwrap().root().third().unwrap())
    };
    assert_eq!(read(AnyArgs::Name("name".into())), "Name(\"name\")");
    assert_eq!(read(AnyArgs::Place(vector)), format!("Place({vector:?})"));
    let mut newer = GivenArgs { third: Some(AnyArgs::Name("x".into())), ..Default::default() }
        .to_message()
        .into_bytes()
        .to_vec();
    // One of its bytes is the variant's number; any other damage is an error, or another value.
    let at = newer.iter().enumerate().filter(|(_, byte)| **byte == 4).map(|(at, _)| at).collect::<Vec<_>>();
    let is_kept = at.into_iter().any(|at| {
        let known = std::mem::replace(&mut newer[at], 99);
        let message = Message::<Given>::read(newer.clone());
        newer[at] = known;
        message.is_ok_and(|message| matches!(message.root().third(), Some(AnyRef::Unknown(99, _))))
    });
    assert!(is_kept, "a variant of a newer schema is kept apart from the known ones");
}

fn fnv1a(text: &[u8]) -> u32 {
    text.iter().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

// ---------------------------------------------------------------------- services

struct Shelf;

impl Store for Shelf {
    async fn store(&self, cx: &mut Context, request: Message<Monster>) -> Result<Message<Stamp>> {
        cx.reply_options().attachment = cx.attachment().clone();
        let monster = request.root();
        if monster.name() == "nobody" {
            return Err(Status::not_found("nobody is stored").with_number(4242).into());
        }
        Ok(StampArgs { seconds: monster.mana().into(), nanos: monster.name().len() as i32, weapon: None }
            .into())
    }

    async fn retrieve(
        &self,
        _: &mut Context,
        request: Message<Stamp>,
    ) -> Result<Streaming<Message<Monster>>> {
        let (sender, monsters) = Streaming::channel(1);
        tokio::spawn(async move {
            for n in 0..request.root().nanos() {
                let name = format!("monster {n}");
                let monster = MonsterArgs { name: name.as_str().into(), ..Default::default() };
                if sender.send(monster.into()).await.is_err() {
                    return;
                }
            }
        });
        Ok(monsters)
    }

    async fn get_http_info(&self, _: &mut Context, _: Message<Given>) -> Result<Message<Nothing>> {
        Ok(NothingArgs {}.into())
    }

    async fn put(&self, _: &mut Context, _: Streaming<Message<Monster>>) -> Result<Message<Nothing>> {
        Ok(NothingArgs {}.into())
    }

    async fn talk(
        &self,
        _: &mut Context,
        requests: Streaming<Message<Given>>,
    ) -> Result<Streaming<Message<Given>>> {
        Ok(requests)
    }
}

fn server() -> Server {
    Server::new().service(StoreServer::new(Shelf))
}

fn orc() -> Message<Monster> {
    MonsterArgs { name: "orc".into(), mana: 7, ..Default::default() }.into()
}

#[tokio::test]
async fn fbs_service_works_over_every_protocol_that_carries_bytes() {
    let server = serve(server()).await;
    let address = server.address();
    for scheme in [
        "fb-rpc",
        "fb-rpc?version=frpc-two-dots",
        "fb-rpc?version=brpc",
        "fb-rpc?version=brpc-two-dots",
        "grpc",
        "rpcx",
    ] {
        for kind in [ConnectionMode::Shared, ConnectionMode::Pooled, ConnectionMode::Short] {
            let client = Client::builder(&url_of(scheme, address)).connection_mode(kind).build().unwrap();
            let stamp = StoreClient::new(client).store(orc()).await.unwrap();
            assert_eq!((stamp.root().seconds(), stamp.root().nanos()), (7, 3), "{scheme}");
        }
    }
}

#[test]
fn blocking_client_calls_a_fbs_service() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let server = runtime.block_on(serve(server()));
    let client = polyrpc::blocking::Client::new(&url(Protocol::FbRpc, &server)).unwrap();
    let stamp = StoreBlockingClient::new(client).store(orc()).unwrap();
    assert_eq!(stamp.root().seconds(), 7);
}

#[tokio::test]
async fn attachments_round_trip_with_messages() {
    let server = serve(server()).await;
    let store = StoreClient::new(Client::new(&url(Protocol::FbRpc, &server)).unwrap());
    let request = Request::new(orc()).with_attachment(Bytes::from_static(b"beside"));
    assert_eq!(&store.store_with(request).await.unwrap().attachment[..], b"beside");
}

#[tokio::test]
async fn failures_carry_their_number() {
    let server = serve(server()).await;
    let client = Client::new(&url(Protocol::FbRpc, &server)).unwrap();
    let store = StoreClient::new(client.clone());
    let nobody = MonsterArgs { name: "nobody".into(), ..Default::default() };
    assert_eq!(store.store(nobody.into()).await.unwrap_err().status().number(), Some(4242));

    let raw = |target: &'static str, bytes: &'static [u8]| {
        let (client, body) = (client.clone(), Body::new(Format::FlatBuffers, bytes));
        async move { client.call_raw(target, body, CallOptions::default()).await.unwrap_err() }
    };
    assert_eq!(raw("test.rich.Store/#10", b"no message").await.status().number(), Some(-1));
    assert_eq!(raw("test.rich.Store/#11", b"no matter").await.status().number(), Some(1002));
    assert_eq!(raw("test.rich.Gone/#10", b"no matter").await.status().number(), Some(1002));
    let unnumbered = raw("test.rich.Store/Store", b"no matter").await;
    assert_eq!((unnumbered.code(), unnumbered.status().number()), (Code::InvalidArgument, Some(1003)));
}

#[tokio::test]
async fn message_streams_work_over_grpc() {
    let server = serve(server()).await;
    let store = StoreClient::new(Client::new(&url(Protocol::Grpc, &server)).unwrap());
    let mut monsters = store.retrieve(StampArgs { nanos: 3, ..Default::default() }.into()).await.unwrap();
    let mut names = Vec::new();
    while let Some(monster) = monsters.message().await.unwrap() {
        names.push(monster.root().name().to_string());
    }
    assert_eq!(names, ["monster 0", "monster 1", "monster 2"]);
}

#[tokio::test]
async fn listener_can_be_restricted_to_one_magic() {
    let bound = server().bind(Listen::on("127.0.0.1:0").fb_rpc(Magic::Brpc)).await.unwrap().start();
    let store = |scheme: &str| StoreClient::new(Client::new(&url_of(scheme, bound.address())).unwrap());
    assert_eq!(store("fb-rpc?version=brpc-two-dots").store(orc()).await.unwrap().root().seconds(), 7);
    let error = store("fb-rpc").store(orc()).await.unwrap_err();
    assert_eq!(error.code(), Code::Unavailable);
    assert!(error.message().contains("version=brpc-two-dots"), "{error}");
    assert_eq!(store("grpc").store(orc()).await.unwrap_err().code(), Code::Unavailable);
}

#[tokio::test]
async fn guarded_server_cannot_be_called_over_fb_rpc() {
    let listen = Listen::on("127.0.0.1:0").authenticate(|credential, _| match credential {
        Some(_) => Ok(()),
        None => Err(Status::unauthenticated("who are you")),
    });
    let guarded = server().bind(listen).await.unwrap().start();
    let error = StoreClient::new(Client::new(&url(Protocol::FbRpc, &guarded)).unwrap())
        .store(orc())
        .await
        .unwrap_err();
    assert_eq!(error.code(), Code::Unavailable);
}

#[tokio::test]
async fn manual_methods_are_numbered_by_position_or_explicit_id() {
    let echo = |cx: Context, body: Bytes| async { (cx, Ok(body)) };
    let service = ServiceBuilder::new("Raw")
        .method::<polyrpc::codec::Raw, Bytes, Bytes, _, _>("First", echo)
        .method::<polyrpc::codec::Raw, Bytes, Bytes, _, _>("Second", echo)
        .id(9);
    let server = serve(Server::new().service(service)).await;
    let call = |scheme: &str, target: &'static str| {
        let client = Client::new(&url_of(scheme, server.address())).unwrap();
        async move {
            let body = Body::new(Format::Raw, &b"bytes"[..]);
            client.call_raw(target, body, CallOptions::default()).await.is_ok()
        }
    };
    for (scheme, target, found) in [
        ("fb-rpc", "Raw/#0", true),
        ("fb-rpc", "Raw/#1", false),
        ("fb-rpc", "Raw/#9", true),
        ("fb-rpc", "Raw/Second#9,1", true),
        ("fb-rpc?version=brpc-two-dots", "Raw/#1", true),
        ("fb-rpc?version=brpc-two-dots", "Raw/Second#9,1", true),
        ("fb-rpc?version=brpc-two-dots", "Raw/#9", false),
        ("fb-rpc?version=brpc", "Raw/#1", true),
    ] {
        assert_eq!(call(scheme, target).await, found, "{scheme} {target}");
    }
}

#[test]
#[should_panic(expected = "S/A and S/B are both number 3 in fb_rpc")]
fn duplicate_method_numbers_panic() {
    let echo = |cx: Context, body: Bytes| async { (cx, Ok(body)) };
    let service = ServiceBuilder::new("S")
        .method::<polyrpc::codec::Raw, Bytes, Bytes, _, _>("A", echo)
        .id(3)
        .method::<polyrpc::codec::Raw, Bytes, Bytes, _, _>("B", echo)
        .id(3);
    let _ = Server::new().service(service);
}

#[test]
fn table_exposes_its_name() {
    assert_eq!(Monster::NAME, "test.rich.Monster");
    let _: MonsterRef<'_> = Monster::over(Fields::NONE);
}
